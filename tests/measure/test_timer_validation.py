"""Holding the timer to account: which kernels it is tried on, and what NVBench said of them."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ladder.gpu.discovery import FoundGpu
from ladder.measure import gpu_job, timer_validation_job
from ladder.measure.conditions import tree_conditions
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records
from ladder.measure.subjects import Subject
from ladder.measure.timer_validation import nvbench_times
from ladder.measure.timer_validation_job import measured, nearest, validate_timer
from ladder.model.cell import Cell, Reference
from ladder.model.errors import LadderError
from ladder.model.folders import RunFolder
from ladder.model.plan import Launch, Plan, Task
from ladder.model.record import Conditions, Record, Session

VARIANT = "tile-fp32"
SETTINGS = dict.fromkeys(
    ("precision", "min_pairs", "max_pairs", "cell_seconds", "seed", "lock_clocks", "warm_below_us"), 1
)


def task(m: int) -> Task:
    size = {"m": m, "n": 64, "k": 64}
    cell = Cell("tile", {}, "fp32", "NN", size, "cold", Reference(libraries=("cublas",)))
    launch = Launch(
        variant=VARIANT,
        params={},
        grid=(m, 1, 1),
        block=(32, 1, 1),
        cluster=None,
        shared_bytes=0,
        arguments=({"pointer": "c"},),
    )
    return Task(
        variant=VARIANT, cell=cell, rung="", absent=None, launch=launch, reference=None, counted=False
    )


@pytest.fixture
def view(tmp_path: Path) -> Callable[..., PlanRecords]:
    """A view with a record per median time in us; the plan starts with a task that was not measured."""
    facts = {VARIANT: {"status": "ok", "machine_code": "a" * 64}}

    def make(*times: float, status: str = "ok", regime: str = "cold") -> PlanRecords:
        tasks = (task(1), *(task(64 * (index + 1)) for index in range(len(times))))
        plan = Plan(
            sweep="tiles",
            problem="gemm",
            arch="sm_90a",
            regimes=("cold", "warm"),
            settings=SETTINGS,
            job={},
            counter_groups=(),
            tasks=tasks,
            variants=facts,
        )
        records = [
            Record(
                cell=one.cell.in_regime(regime),
                conditions=Conditions(tree_conditions(plan, one, regime)),
                variant=VARIANT,
                sweep="tiles",
                session="session",
                time="2026-01-01T00:00:00Z",
                status=status,
                result={"variant_us": [time * 0.9, time, time * 1.5]} if status == "ok" else {},
            )
            for time, one in zip(times, tasks[1:], strict=True)
        ]
        return PlanRecords(plan, Records({record.cell.id: [record] for record in records}))

    return make


def subjects(given: PlanRecords, *targets: float) -> list[Subject]:
    return nearest(list(measured(given)), targets)


def times_of(found: list[Subject]) -> list[float]:
    return [subject.median_us for subject in found]


def test_each_target_gets_the_nearest_cell(view: Callable[..., PlanRecords]) -> None:
    given = view(900.0, 14.0, 30.0, 5000.0, 120.0)
    assert subjects(given, 15.0, 1000.0) == [
        Subject(2, given.plan.tasks[2], "tile-fp32 at 128x64x64", 14.0),
        Subject(1, given.plan.tasks[1], "tile-fp32 at 64", 900.0),
    ]


def test_nearest_is_by_ratio_and_not_by_difference(view: Callable[..., PlanRecords]) -> None:
    # 55 is 45 us from 100 and 1.8 times away; 150 is 50 us and 1.5 times.
    assert times_of(subjects(view(55.0, 150.0), 100.0)) == [150.0]


def test_a_cell_nearest_to_two_targets_is_tried_once(view: Callable[..., PlanRecords]) -> None:
    assert times_of(subjects(view(60.0, 1900.0), 50.0, 100.0, 1000.0, 3000.0)) == [60.0, 1900.0]


def test_subjects_come_in_order_of_time(view: Callable[..., PlanRecords]) -> None:
    found = subjects(view(3000.0, 15.0, 250.0, 50.0), 15.0, 50.0, 100.0, 250.0, 1000.0, 3000.0, 10000.0)
    assert times_of(found) == sorted(times_of(found)) == [15.0, 50.0, 250.0, 3000.0]


def test_a_target_twice_away_has_no_subject(view: Callable[..., PlanRecords]) -> None:
    assert subjects(view(19.0), 10.0) != []
    assert subjects(view(21.0), 10.0) == []


@pytest.mark.parametrize("changes", [{"status": "incorrect"}, {"regime": "warm"}])
def test_cells_without_a_time_in_the_clocks_regime_are_no_subjects(
    view: Callable[..., PlanRecords], changes: dict[str, Any]
) -> None:
    assert list(measured(view(15.0))) != []
    assert list(measured(view(15.0, **changes))) == []


def test_records_that_the_plan_no_longer_has_are_no_subjects(view: Callable[..., PlanRecords]) -> None:
    before = view(15.0, 50.0)
    plan = dataclasses.replace(before.plan, tasks=(before.plan.tasks[0], before.plan.tasks[2]))
    found = list(measured(dataclasses.replace(before, plan=plan)))
    assert [(subject.task, subject.median_us) for subject in found] == [(before.plan.tasks[2], 50.0)]


def test_nothing_measured_is_nothing_to_try(view: Callable[..., PlanRecords]) -> None:
    assert subjects(view(), 15.0, 1000.0) == []


def state(subject: str, median_s: str, noise: str) -> dict[str, Any]:
    """One state as NVBench writes it: numbers are text, and other summaries lie around the two that matter."""

    def summary(tag: str, name: str, kind: str, value: str) -> dict[str, Any]:
        return {
            "tag": tag,
            "name": name,
            "hint": "duration",
            "description": "…",
            "data": [{"name": "value", "type": kind, "value": value}],
        }

    return {
        "name": f"Device=0 subject={subject}",
        "device": 0,
        "axis_values": [
            {"name": "other", "type": "int64", "input_string": "1", "value": "1"},
            {"name": "subject", "type": "string", "input_string": subject, "value": subject},
        ],
        "summaries": [
            summary("nv/cold/sample_size", "Samples", "int64", "2048"),
            summary("nv/cold/time/cpu/mean", "CPU Time", "float64", "0.001"),
            summary("nv/cold/time/gpu/mean", "GPU Time", "float64", "0.002"),
            summary("nv/cold/time/gpu/median", "GPU Median", "float64", median_s),
            summary("nv/cold/time/gpu/stdev/relative", "Noise", "float64", noise),
            {
                "tag": "nv/json/bin:nv/cold/sample_times",
                "name": "Samples Times File",
                "data": [
                    {"name": "filename", "type": "string", "value": "nvbench.json-bin/0.bin"},
                    {"name": "size", "type": "int64", "value": "2048"},
                ],
            },
        ],
        "is_skipped": False,
    }


def test_nvbench_times_are_medians_in_microseconds_with_their_noise() -> None:
    states = [
        state("tile-fp32 at 4096x4096", "1.5e-05", "0.017"),
        state("tile-fp32 at 8192", "0.0018695", "0.0006"),
    ]
    times = nvbench_times({"benchmarks": [{"name": "subjects", "states": states}]})
    assert times == {
        "tile-fp32 at 4096x4096": pytest.approx((15.0, 0.017)),
        "tile-fp32 at 8192": pytest.approx((1869.5, 0.0006)),
    }


def test_what_nvbench_skipped_is_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    skipped = state("tile-fp32 at 64", "0", "0")
    skipped |= {"summaries": None, "is_skipped": True, "skip_reason": "Requested GPU memory is not there"}
    states = [skipped, state("tile-fp32 at 8192", "0.0018695", "0.0006")]
    assert [*nvbench_times({"benchmarks": [{"name": "subjects", "states": states}]})] == ["tile-fp32 at 8192"]
    assert "no time of tile-fp32 at 64: Requested GPU memory is not there" in caplog.text


def tried(
    view: PlanRecords,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sessions: list[str],
    worker: str,
    jobs: int = 1,
) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """The rows that the job gets from a made-up worker on a host with GPU-a and GPU-b, and where it was started."""
    (folder / "worker.py").write_text(worker)
    started: list[list[str]] = []
    run = subprocess.run

    def noted(command: list[str], env: dict[str, str], **given: Any) -> Any:
        started.append([env["CUDA_VISIBLE_DEVICES"], command[-3]])
        return run(command, env=env, **given)

    known = {uuid: Session(uuid, "", gpu={"uuid": uuid}) for uuid in sessions}
    gpus = [FoundGpu(0, "Made-up", uuid, (9, 0)) for uuid in ("GPU-a", "GPU-b")]
    command = [sys.executable, str(folder / "worker.py")]
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
    monkeypatch.setattr(timer_validation_job, "find_gpus", lambda: gpus)
    monkeypatch.setattr(gpu_job, "process_command", lambda _, path, plan, root: [*command, plan.sweep])
    store = dataclasses.replace(view.records, sessions=known)
    monkeypatch.setattr(timer_validation_job, "read_store", lambda _: store)
    monkeypatch.setattr("ladder.measure.gpu_job.subprocess.run", noted)
    plans = {Path(name): dataclasses.replace(view.plan, sweep=name) for name in ("tiles", "more")}
    return validate_timer(plans, RunFolder(folder), folder, jobs), started


ANSWERS = """
import json, sys
given = json.loads(sys.argv[2])
rows = {"clock_nvbench": [{"subject": str(given), "median_us": 1.0, "nvbench_us": 1.0}]}
open(sys.argv[3], "w").write(json.dumps(rows))
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_clock_is_tried_with_each_sweep_on_each_gpu_that_has_measured(
    view: Callable[..., PlanRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    given = view(5.0, 16.0, 280.0, 19000.0)
    found, started = tried(given, tmp_path, monkeypatch, ["GPU-a", "GPU-b", "GPU-elsewhere"], ANSWERS, jobs)
    places = [(gpu, sweep) for gpu in ("GPU-a", "GPU-b") for sweep in ("tiles", "more")]
    assert sorted(map(tuple, started)) == sorted(places)
    assert [(row["gpu_uuid"], row["sweep"]) for row in found] == places
    assert {row["subject"] for row in found} == {str([[1, 5.0], [2, 16.0], [3, 280.0], [4, 19000.0]])}


def test_a_gpu_without_a_session_is_left_alone(
    view: Callable[..., PlanRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, started = tried(view(5.0), tmp_path, monkeypatch, ["GPU-b"], ANSWERS)
    assert {gpu for gpu, _ in started} == {"GPU-b"}


def test_where_no_visible_gpu_has_a_session_one_of_them_is_tried(
    view: Callable[..., PlanRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, started = tried(view(5.0), tmp_path, monkeypatch, ["GPU-elsewhere"], ANSWERS)
    assert {gpu for gpu, _ in started} == {"GPU-a"}


def test_without_a_subject_no_process_is_started(
    view: Callable[..., PlanRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, started = tried(view(1e6), tmp_path, monkeypatch, ["GPU-a"], ANSWERS)
    assert started == []
    assert found == []


@pytest.mark.parametrize("worker", ["raise SystemExit(3)", "", ANSWERS + "raise SystemExit(3)"])
def test_a_process_that_fails_is_an_error_that_names_sweep_and_gpu(
    view: Callable[..., PlanRecords], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    with pytest.raises(LadderError, match="validate_timer with tiles on GPU-a ended with exit code"):
        tried(view(5.0), tmp_path, monkeypatch, ["GPU-a"], worker)


def test_targets_reach_from_4_us_to_20_ms_without_a_gap(view: Callable[..., PlanRecords]) -> None:
    """Of cells that take any time there are, the subjects lie close enough."""
    dense = [3.0 * 1.1**step for step in range(100)]
    times = times_of(timer_validation_job.subjects(view(*dense)))
    assert times[0] == pytest.approx(4.0, rel=0.06)
    assert times[-1] == pytest.approx(20000.0, rel=0.06)
    assert all(after / before < 4.5 for before, after in itertools.pairwise(times))
