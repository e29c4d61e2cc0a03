"""Digests of the package's code: what a change makes run again, one of each kind, and the page that lists them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from factory import Lab
from ladder.build.nvrtc import Request
from ladder.catalogue.field_docs import BEGIN, END
from ladder.cli.rules import STEP_MODULES, code_digests, digest_list, step_code
from ladder.measure.conditions import (
    PACKAGES,
    TIMER,
    host_conditions,
    measuring_code,
    timer_validation_code,
    tree_conditions,
)
from ladder.model import code
from ladder.model.cell import COUNTERS
from ladder.model.code import PACKAGE, closure
from test_reruns import CHANGES

ASK = """
import json
from ladder.measure.conditions import measuring_code
print(json.dumps([measuring_code("gemm", regime) for regime in ("cold", "counters")]))
"""


def digests() -> dict[str, str]:
    """Every digest of code, by its name on the page."""
    for known in (measuring_code, code.digest):
        known.cache_clear()
    times, counters = (measuring_code("gemm", regime) for regime in ("", COUNTERS))
    found = {"check": times["check"], "timing": times["timing"], "counters": counters["check"]}
    found |= {
        "compile": Request(Path(), "", Path(), (), "sm_90a").key,
        "compile_triton": code.digest("ladder.build.triton_request", "ladder.build.triton_compiler"),
        "facts": code.digest("ladder.build.variants"),
    }
    return found | {"clock": timer_validation_code()} | {step: step_code(step) for step in STEP_MODULES}


@pytest.fixture(scope="module", autouse=True)
def as_it_stands() -> Iterator[dict[str, str]]:
    """Digests of the code as it is."""
    yield digests()
    digests()


NOTHING = set[str]()
CHECK, TIMING = {"check", "counters", "clock"}, {"timing", "clock"}


@pytest.mark.parametrize(
    ("file", "before", "after", "again"),
    [
        ("gpu/timing.py", "int(1.4 * count)", "int(1.5 * count)", TIMING),
        ("gpu/timing.py", "enqueueing one launch took over", "one launch took over", NOTHING),
        ("model/intervals.py", "2**count // 40", "2**count // 20", TIMING),
        ("measure/bench.py", "_WARM_UP_S = 0.15", "_WARM_UP_S = 0.25", CHECK),
        ("measure/bench.py", "of shared memory per block, the device has", "a block, and has", NOTHING),
        ("measure/bench.py", "bytes of device memory, {free} are free", "bytes, {free} are left", NOTHING),
        (
            "measure/worker.py",
            "takes {us:.2f} us where the hardware needs",
            "{us:.2f} us where it needs",
            NOTHING,
        ),
        (
            "measure/watch.py",
            "random.randrange(_SAMPLED)",
            "random.randrange(9)",
            CHECK - {"counters"},
        ),
        (
            "problems/gemm/instance.py",
            "INSTANCE = GemmInstance",
            "INSTANCE = Other = GemmInstance",
            CHECK - {"clock"},
        ),
        ("measure/traced.py", "1.0, 0.5", "1.0, 0.25", {"counters"}),
        ("measure/timer_validation.py", 'REGIME = "dirty"', 'REGIME = "cold"', {"clock"}),
        (
            "measure/gpu_job.py",
            '"CUDA_VISIBLE_DEVICES"',
            '"CUDA_DEVICES"',
            {"clock"},
        ),
        (
            "build/nvrtc.py",
            "--ptxas-options=-v",
            "--ptxas-options=-w",
            {"compile", "facts"},
        ),
        (
            "build/triton_compiler.py",
            "32 * about.num_warps",
            "64 * about.num_warps",
            {"compile_triton", "facts"},
        ),
        ("build/occupancy.py", "def occupancy(", "def _occupancy(", {"facts"}),
        ("model/schemas.py", 'notes": columns("sweep stage', 'notes": columns("sweep new stage', NOTHING),
        ("model/errors.py", "is not accepted", "is refused", NOTHING),
        ("model/files.py", "a JSON object is expected", "this is no JSON object", NOTHING),
        ("results/collect.py", "def dtype_peaks", "def peaks_of_dtypes", NOTHING),
        ("results/publish.py", "_ROUNDED = 1e-3", "_ROUNDED = 1e-4", NOTHING),
        ("claims/ledger.py", "import", "import ", NOTHING),
        ("report/titles.py", "its baseline", "the baseline", NOTHING),
        ("measure/job.py", "_LEAVING_S = 10.0", "_LEAVING_S = 20.0", NOTHING),
    ],
)
def test_what_a_change_makes_run_again(
    file: str,
    before: str,
    after: str,
    again: set[str],
    as_it_stands: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    was, read, says = as_it_stands, code.source, code._says

    def source(path: Path) -> str:
        return read(path).replace(before, after, 1) if path == PACKAGE / file else read(path)

    assert before in read(PACKAGE / file), "the change is one"
    monkeypatch.setattr(code, "source", source)
    # Other files need not be parsed again.
    afresh = {PACKAGE / file: says.__wrapped__}
    monkeypatch.setattr(code, "_says", lambda path: afresh.get(path, says)(path))
    now = digests()
    # Steps that make tables, verdicts and figures run again for any word of the files that they run.
    steps = {step for step in STEP_MODULES if file in code_digests()[step]}
    assert {name for name in was if was[name] != now[name]} == again | steps


def test_one_change_of_each_digest_is_tried() -> None:
    (marked,) = (
        one
        for one in test_what_a_change_makes_run_again.pytestmark  # type: ignore[attr-defined]
        if one.name == "parametrize"
    )
    changes = marked.args[1]
    assert (
        set().union(*(again for *_, again in changes)) | {*STEP_MODULES} == {*code_digests()} == {*digests()}
    )
    for step in STEP_MODULES:
        assert {file for file, *_ in changes} & {*code_digests()[step]}, step


def test_a_copy_elsewhere_has_the_same_digests(tmp_path: Path) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "ladder", ignore=shutil.ignore_patterns("__pycache__"))
    path = os.environ | {"PYTHONPATH": str(Path(copy).parent)}
    done = subprocess.run([sys.executable, "-c", ASK], env=path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [measuring_code("gemm", regime) for regime in ("cold", "counters")]


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


# docs/measuring.md

PAGE = ROOT / "docs" / "measuring.md"


def test_the_page_has_the_list_that_make_reference_writes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == digest_list().strip(), "run `make reference`"


def names() -> set[str]:
    """What the first columns of the list name."""
    rows = [line.split("|")[1] for line in digest_list().splitlines() if line.startswith("| `")]
    return {name.strip(" `") for row in rows for name in row.split(",")}


def test_the_list_has_every_condition_and_every_digest_of_code(tmp_path: Path) -> None:
    lab, found = Lab(tmp_path), set[str]()
    for name, sweep in lab.sweeps().items():
        lab.compile(sweep)
        view = lab.view(name)
        for _, task in view.launched():
            for regime in (*view.plan.regimes, *([COUNTERS] if task.counted else [])):
                found |= {*tree_conditions(view.plan, task, regime), *lab.on(view.plan.problem)}
    assert found >= {"reference", "groups", "nvidia-cublas"}
    assert names() == found | {"errors", "external"} | {*code_digests()} - {"counters"}


CHANGE_OF = {
    "machine_code": "a kernel's machine code",
    "reference": "machine code of a reference",
    "harness": "the harness of a problem",
    "launch": "an argument",
    "settings": "precision",
    "errors": "errors by kind of inputs",
    "groups": "groups of counters",
    "gpu": "GPU model",
    "driver": "driver",
    "nvidia-cublas": "cuBLAS",
    **dict.fromkeys(PACKAGES, "cuda-core"),
    "check": "the code that checks",
    "timing": "the timer",
}
"""Condition -> the change in test_reruns.py that measures exactly what depends on it; external: test_references.py."""


def test_each_condition_is_changed_once() -> None:
    assert {*CHANGE_OF.values()} <= {*CHANGES}
    assert {*CHANGE_OF} == names() - {*digests()} - {"external"} | {"check", "timing"}
