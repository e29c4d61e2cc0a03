"""What a change of the code makes invalid: one of each kind, made in a copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ladder.measure.conditions import TIMER, host_conditions, measuring_code
from ladder.model.code import PACKAGE, closure

ASK = """
import json
from ladder.measure.conditions import measuring_code
print(json.dumps([measuring_code("gemm", regime) for regime in ("cold", "counters")]))
"""


def digests(package: Path) -> list[dict[str, str]]:
    """Of times and of counters, as a process says that has this package."""
    path = os.environ | {"PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", ASK], env=path, capture_output=True, text=True, check=True)
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "ladder", ignore=shutil.ignore_patterns("__pycache__")))


NOTHING, CHECK, TIMING = set[str](), {"check"}, {"timing"}


@pytest.mark.parametrize(
    ("file", "before", "after", "invalid"),
    [
        ("model/schemas.py", 'notes": columns("sweep stage', 'notes": columns("sweep new stage', NOTHING),
        ("model/plan_file.py", "def read_plan", "def read_the_plan", NOTHING),
        ("model/document.py", "a field is missing", "some field is missing", NOTHING),
        ("results/collect.py", "def dtype_peaks", "def peaks_of_dtypes", NOTHING),
        ("measure/job.py", "_LEAVING_S = 10.0", "_LEAVING_S = 20.0", NOTHING),
        ("measure/bench.py", "of shared memory per block, the device has", "a block, and has", NOTHING),
        ("gpu/timing.py", "enqueueing one launch took over", "one launch took over", NOTHING),
        (
            "measure/worker.py",
            "takes {us:.2f} us where the hardware needs",
            "takes {us:.2f} us, and should",
            NOTHING,
        ),
        ("measure/bench.py", "bytes of device memory, {free} are free", "bytes, {free} are left", NOTHING),
        ("model/errors.py", "is not accepted", "is refused", NOTHING),
        ("model/files.py", "a JSON object is expected", "this is no JSON object", NOTHING),
        ("gpu/timing.py", "int(1.4 * count)", "int(1.5 * count)", TIMING),
        ("model/intervals.py", "2**count // 40", "2**count // 20", TIMING),
        ("problems/gemm/instance.py", "INSTANCE = GemmInstance", "INSTANCE = Other = GemmInstance", CHECK),
        ("measure/watch.py", "random.randrange(_SAMPLED)", "random.randrange(9)", CHECK),
    ],
)
def test_what_a_change_makes_invalid(
    file: str, before: str, after: str, invalid: set[str], copy: Path
) -> None:
    was, path = digests(copy)[0], copy / file
    text = path.read_text(encoding="utf-8")
    assert before in text, "the change is one"
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    now = digests(copy)[0]
    assert {name for name in was if was[name] != now[name]} == invalid


def test_a_copy_elsewhere_has_the_same_digests(copy: Path) -> None:
    assert digests(copy) == [measuring_code("gemm", regime) for regime in ("cold", "counters")]


def test_the_timer_is_code_that_measuring_runs() -> None:
    files = {path.relative_to(PACKAGE).as_posix() for path in closure(["ladder.measure.worker"])}
    assert files >= set(TIMER)
    assert not files & {"model/schemas.py", "model/document.py", "model/record.py", "measure/job.py"}


@pytest.mark.parametrize(
    "package", ["cuda-core", "cuda-bindings", "nvmath-python", "cupti-python", "nvidia-cublas"]
)
def test_what_launches_and_answers_is_a_condition(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {package: "1.0"}
    monkeypatch.setattr("ladder.measure.conditions.package_version", versions.get)
    before = host_conditions("gemm", "NVIDIA H200", "580")
    versions[package] = "1.1"
    assert host_conditions("gemm", "NVIDIA H200", "580") != before
