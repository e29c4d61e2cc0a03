"""cuBLASLt as a reference, with a library that the test scripts in place of the real one: which algorithms it has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ladder.gpu import libraries
from ladder.gpu.libraries import Gemm, Libraries
from ladder.model.errors import LadderError

FP8 = Gemm((1, 2, 3), (64, 64, 64), "fp8", "TN")
BF16 = Gemm((1, 2, 3), (64, 64, 64), "bf16", "TN")


class LibraryError(Exception):
    """What the scripted library raises."""


class ScriptedLibrary:
    """A heuristic list of (id, tile), of which it tells nothing else; all of the real one's names."""

    def __init__(self, listed: Sequence[tuple[int, int]]) -> None:
        self.listed, self.launched, self.fast = list(listed), list[int](), list[int]()
        self.described = dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        if name.endswith(("_create", "_set_attribute")) or name == "create":
            return lambda *_: 0
        return LibraryError if name == "cuBLASLtError" else getattr(REAL, name)

    def matmul_desc_set_attribute(
        self, descriptor: int, attribute: int, at: int, size: int
    ) -> None:
        if attribute == REAL.MatmulDescAttribute.FAST_ACCUM:
            assert size == 1
            self.fast.append(ctypes.c_int8.from_address(at).value)
        given = int.from_bytes(ctypes.string_at(at, size), "little")
        self.described[REAL.MatmulDescAttribute(attribute).name] = given

    def matmul_algo_get_heuristic(self, *given: Any) -> None:
        wanted, at, count = given[-3:]
        kind = REAL.matmul_heuristic_result_dtype
        space = (ctypes.c_char * (wanted * kind.itemsize)).from_address(at)
        found = np.frombuffer(space, kind)
        for place, algorithm in enumerate(self.listed[:wanted]):
            found["algo"]["data_"][place][:2] = algorithm
            found["workspace_size"][place] = 512
        ctypes.c_int32.from_address(count).value = min(len(self.listed), wanted)

    def matmul_algo_config_get_attribute(
        self, at: int, attribute: int, to: int, size: int, *_: int
    ) -> None:
        known = REAL.MatmulAlgoConfigAttribute
        if attribute not in (known.ID, known.TILE_ID):
            raise LibraryError
        number = ctypes.c_uint64.from_address(
            at + 8 * (attribute == known.TILE_ID)
        ).value
        ctypes.memmove(to, number.to_bytes(size, "little"), size)

    def matmul(self, *given: Any) -> None:
        at, self.scalars = (
            given[12],
            [ctypes.c_float.from_address(given[one]).value for one in (2, 7)],
        )
        self.launched.append(ctypes.c_uint64.from_address(at + 8).value)


REAL = libraries.lt
Make = Callable[..., tuple[Libraries, ScriptedLibrary]]


class Anything:
    """Stands for a GPU's buffers and streams."""

    handle = 0

    def __getattr__(self, name: str) -> Anything:
        return self


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Libraries over a heuristic list of algorithms, each with its number and its tile."""

    def made(*listed: tuple[int, int]) -> tuple[Libraries, ScriptedLibrary]:
        scripted = ScriptedLibrary(listed)
        monkeypatch.setattr(libraries, "lt", scripted)
        found = Libraries.__new__(Libraries)
        found.gpu, found._candidates, found._workspace = Anything(), 8, Anything()
        return found, scripted

    return made


def test_every_algorithm_of_the_list_has_the_name_that_the_library_tells(
    make: Make,
) -> None:
    found, scripted = make((66, 30), (66, 20), (7, 25))
    launchers = found.cublaslt(BF16)
    assert [*launchers] == [
        f"id {number} tile {tile} workspace 512"
        for number, tile in ((66, 30), (66, 20), (7, 25))
    ]
    for launcher in launchers.values():
        launcher()
    assert scripted.launched == [30, 20, 25]


def test_algorithms_of_which_the_library_tells_the_same_are_two(make: Make) -> None:
    found, _ = make((66, 20), (66, 20), (66, 20))
    name = "id 66 tile 20 workspace 512"
    assert [*found.cublaslt(BF16)] == [name, f"{name} again", f"{name} again again"]


def test_fast_accumulation_is_set_where_it_is_asked_for(make: Make) -> None:
    found, scripted = make((66, 20))
    found.cublaslt(FP8)
    assert scripted.fast == []
    found.cublaslt(FP8, fast=True)
    assert scripted.fast == [1]
    with pytest.raises(LadderError, match="fast accumulation is a setting of fp8"):
        found.cublaslt(BF16, fast=True)


def test_block_scales_swap_as_their_operands_do(make: Make) -> None:
    """cuBLASLt's A is b, with 128 x 128 of it for each scale."""
    found, scripted = make((66, 20))
    found.cublaslt(FP8)
    assert [*scripted.described] == ["TRANSA"]
    found.cublaslt(replace(FP8, scales=(5, 6)))
    modes = REAL.MatmulMatrixScale
    assert scripted.described == {
        "TRANSA": 1,
        "A_SCALE_MODE": modes.BLK128x128_32F,
        "B_SCALE_MODE": modes.VEC128_32F,
        "A_SCALE_POINTER": 6,
        "B_SCALE_POINTER": 5,
    }


def test_a_launch_multiplies_by_one_and_adds_nothing(make: Make) -> None:
    made, library = make((1, 4))
    made._cublas = 0
    (launch,) = made.cublaslt(BF16).values()
    launch()
    assert library.scalars == [1.0, 0.0]
    given = made.cublas(BF16).args  # type: ignore[attr-defined]
    assert [ctypes.c_float.from_address(given[one]).value for one in (6, 13)] == [
        1.0,
        0.0,
    ]
