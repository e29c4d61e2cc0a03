"""Kernels that a launcher of one's own launches, in the worker. The GPU is only played."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import test_references
import test_worker
from ladder.gpu.stamps import OtherStream
from ladder.measure import bench, watch
from ladder.model.cell import External
from ladder.model.errors import LadderError
from ladder.model.files import file_sha256
from ladder.model.plan import Plan
from test_worker import answered, played

__all__ = ["played"]  # a fixture that every test here has

LAUNCHER = """
calls, launches = [], []


def good(problem, buffers, sizes, scalars, stream):
    size = {name: sizes[name] for name in "mnk"}
    calls.append(size)
    return lambda: launches.append(size)


def raises(*given):
    return lambda: 1 / 0
"""


class PlayedClock:
    """A device clock that may see another stream."""

    other = False

    def __init__(self, *_: Any) -> None:
        self.alone = False

    @contextlib.contextmanager
    def recording(self, alone: bool = False) -> Iterator[None]:
        self.alone = alone
        yield

    def times(self, count: int) -> list[float]:
        if self.alone and self.other:
            raise OtherStream("enqueues on another stream")
        return [test_worker.LAUNCH_US] * count


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[PlayedClock]:
    monkeypatch.setattr(PlayedClock, "other", False)
    monkeypatch.setattr(bench, "DeviceClock", PlayedClock)
    monkeypatch.setattr(test_worker, "LAUNCH_US", 90.0)  # short enough for warm
    return PlayedClock


def plan_of(folder: Path, entry: str = "good") -> Plan:
    """A plan whose first variant is launched by a Python function, against cuBLAS."""
    file = folder / "opaque.py"
    file.write_text(LAUNCHER)
    code = External("python", str(file), entry, "", file_sha256(file))
    plan = test_references.own_plan(folder, ["cublas"])
    name = plan.tasks[0].variant
    facts = {**plan.variants[name], "launcher": asdict(code)}
    return replace(plan, variants={**plan.variants, name: facts})


def test_a_launcher_is_verified_at_edges_and_at_every_timed_launch(
    tmp_path: Path, clock: type[PlayedClock]
) -> None:
    plan = plan_of(tmp_path)
    results = answered(plan, tmp_path, "cold", "warm")
    cold = results["cold"]
    assert results["fatal"], "its host code may have changed the process"
    assert (cold["status"], results["warm"]["status"]) == ("ok", "ok")
    assert cold["clock"] == "device"
    single = len(cold["variant_us"])
    assert cold["check"]["launches"] > single
    code = plan.variants[plan.tasks[0].variant]["launcher"]
    module = sys.modules[f"reference_opaque_{code['sha256'][:8]}"]
    edges = [edge.size for edge in plan.edges[plan.tasks[0].variant]]
    assert edges
    assert all(size in module.calls for size in edges)
    assert module.launches.count(plan.tasks[0].cell.size) > single


def test_work_on_another_stream_is_stateful_and_ends_the_process(
    tmp_path: Path, clock: type[PlayedClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "other", True)
    results = answered(plan_of(tmp_path), tmp_path)
    assert results["fatal"]
    assert results["cold"]["status"] == "stateful"
    assert results["cold"]["reason"] == "enqueues on another stream"


def test_without_device_timestamps_none_is_judged(tmp_path: Path) -> None:
    cold = answered(plan_of(tmp_path), tmp_path)["cold"]
    assert cold["status"] == "unsupported"
    assert (
        "a launcher is judged by device timestamps alone: no device" in cold["reason"]
    )


def test_what_it_raises_is_the_reason(tmp_path: Path, clock: type[PlayedClock]) -> None:
    cold = answered(plan_of(tmp_path, "raises"), tmp_path)["cold"]
    assert cold["status"] == "launch_error"
    assert "opaque.py: raises: its launcher raised: ZeroDivision" in cold["reason"]


def test_another_context_is_named(
    tmp_path: Path, clock: type[PlayedClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(gpu: Any) -> None:
        raise LadderError("leaves another CUDA context or device current")

    monkeypatch.setattr(test_worker.Gpu, "refuse_other_context", refuse)
    cold = answered(plan_of(tmp_path), tmp_path)["cold"]
    assert cold["status"] == "launch_error"
    assert "leaves another CUDA context" in cold["reason"]


def test_where_it_cannot_be_captured_there_is_no_warm(
    tmp_path: Path, clock: type[PlayedClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(stream: Any, members: Any) -> Any:
        raise RuntimeError("it synchronises")

    monkeypatch.setattr(watch, "capture", refuse)
    results = answered(plan_of(tmp_path), tmp_path, "cold", "warm")
    assert results["cold"]["status"] == "ok"
    assert results["warm"]["status"] == "unsupported"
    says = "the launcher: not captured in a CUDA graph: it synchronises"
    assert results["warm"]["reason"] == says
