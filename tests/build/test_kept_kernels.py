"""What tests keep of the compiler between them: found again for the same source and headers alone."""

from __future__ import annotations

from pathlib import Path

import compiling
import pytest
from compiling import compile_text
from ladder.build.nvrtc import CompileError

TEXT = '#include "outer.cuh"\n__global__ void kernel(int* out) { *out = value(); }\n'


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sources that reached the compiler; what is kept lies in a folder of the test."""
    monkeypatch.setattr(compiling, "KEPT", tmp_path / "kept")
    real, found = compiling.compile_source, list[str]()

    def compile_source(text: str, *rest: object) -> object:
        found.append(text)
        return real(text, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compiling, "compile_source", compile_source)
    return found


def headers(folder: Path, value: str = "3") -> Path:
    (folder / "inner").mkdir(parents=True, exist_ok=True)
    (folder / "outer.cuh").write_text('#pragma once\n#include "inner/value.cuh"\n')
    (folder / "inner/value.cuh").write_text(
        f"__device__ int value() {{ return {value}; }}\n"
    )
    return folder


def test_the_same_source_is_compiled_once_wherever_its_headers_lie(
    tmp_path: Path, calls: list[str]
) -> None:
    first = compile_text(TEXT, ["kernel"], [headers(tmp_path / "here")], "sm_90a")
    assert (
        compile_text(TEXT, ["kernel"], [headers(tmp_path / "there")], "sm_90a") == first
    )
    assert len(calls) == 1


def test_a_header_of_a_header_counts_and_so_does_the_architecture(
    tmp_path: Path, calls: list[str]
) -> None:
    first = compile_text(TEXT, ["kernel"], [headers(tmp_path)], "sm_90a")
    assert compile_text(TEXT, ["kernel"], [headers(tmp_path, "4")], "sm_90a") != first
    assert compile_text(TEXT, ["kernel"], [tmp_path], "sm_80") != first
    assert len(calls) == 3


def test_errors_are_not_kept(tmp_path: Path, calls: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(CompileError, match="identifier"):
            compile_text(TEXT, ["kernel"], [headers(tmp_path, "three")], "sm_90a")
    assert len(calls) == 2
