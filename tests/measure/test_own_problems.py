"""A problem of one's own in the worker: its plan alone says what it is. The GPU is only played."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import test_worker
from ladder.catalogue.kernels import load_kernel
from ladder.catalogue.sweeps import make_sweep
from ladder.measure import worker
from ladder.model.errors import LadderError
from ladder.model.plan import Plan
from ladder.model.plan_file import read_plan
from ladder.problems.registry import PROBLEMS
from test_worker import assignment, planned, played

__all__ = ["played"]  # a fixture that every test here has

DOCUMENT = """
module: rows.py
size: {m: 64, n: 32}
inputs: {x: [m, n]}
outputs: {y: [m, n], sums: [m]}
kinds: [uniform, positive]
tolerance: {rtol: 1e-4, atol: 1e-6}
"""
MODULE = """
answers, launches = [], []


def answer(problem, buffers, sizes, scalars, stream):
    size = sizes["m"], sizes["n"]
    made = answers if problem.dtype == "fp64" else launches
    return lambda: made.append(size)
"""
KERNEL = """
summary: rows
problem: ../rows.yaml
origin: [tests]
entry: rows
dtypes: {fp32: {}}
min_arch: sm_80
launch: {grid: [m], block: [32]}
arguments: [{pointer: x}, {pointer: y}, {pointer: sums}]
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    before = {*PROBLEMS}
    yield
    for name in PROBLEMS.keys() - before:
        del PROBLEMS[name]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Of a kernel against the module, read in a process that has seen no document."""
    monkeypatch.setattr(test_worker, "LAUNCH_US", 90.0)  # short enough for warm
    (tmp_path / "rows.yaml").write_text(DOCUMENT)
    (tmp_path / "rows.py").write_text(MODULE)
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/mine.yaml").write_text(KERNEL)
    (tmp_path / "kernel/mine.cu").write_text("")
    kernel = load_kernel(tmp_path / "kernel/mine.yaml")
    fields = {
        "title": "rows",
        "question": "Are they right?",
        "problem": kernel.problem.name,
        "dtypes": ["fp32"],
        "sizes": [{"m": 48, "n": 16}],
        "variants": [{"kernel": "mine"}],
        "references": [{"python": str(tmp_path / "rows.py"), "entry": "answer"}],
    }
    sweep = make_sweep(Path("command line"), fields, {"mine": kernel}, tmp_path)
    planned(replace(sweep, name="judge"), tmp_path)
    del PROBLEMS[kernel.problem.name]
    return read_plan(tmp_path / "judge.json")


def test_the_module_answers_behind_every_launch_that_is_checked(
    plan: Plan, tmp_path: Path
) -> None:
    made = worker.Worker(plan, tmp_path)
    results = made.answer(assignment(plan, 0, "cold", "warm"))["results"]
    assert (results["cold"]["status"], results["warm"]["status"]) == ("ok", "ok")
    cold = results["cold"]
    single = len(cold["variant_us"])
    checked = cold["check"]["launches"]
    assert checked > single
    assert cold["check"]["error_bound"] == 1.0
    answers = made.bench.current._module._module.answers
    assert answers.count((48, 16)) > checked
    edges = [size for size in answers if size == (64, 32)]
    assert len(edges) == 2, "with each kind of inputs"


def test_a_module_that_fails_stops_the_run(plan: Plan, tmp_path: Path) -> None:
    made = worker.Worker(plan, tmp_path)

    def fail() -> None:
        raise LadderError("rows.py: answer: raised")

    made.bench.instance(plan.tasks[0].cell)
    vars(made.bench.current)["_answer"] = fail
    with pytest.raises(ValueError, match=r"no kernel is to blame: rows\.py"):
        made.answer(assignment(plan, 0, "cold"))
