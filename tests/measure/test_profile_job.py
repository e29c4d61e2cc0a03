"""The profiler step with a played `ncu`: which metrics it gets, what is noted, and why none is counted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from factory import Fields, Lab, Place, failed
from ladder.cli.app import main
from ladder.gpu.discovery import FoundGpu
from ladder.measure.gpu_job import GpuProgram
from ladder.measure.ncu import (
    METRIC_GROUPS,
    Metric,
    Note,
    Profiler,
    ProfilerUnavailable,
    read_report,
)
from ladder.measure.store import read_store
from ladder.model.cell import COUNTERS
from ladder.model.files import read_json
from ladder.model.record import Record

BANKS = METRIC_GROUPS["banks"].split()
GPU = FoundGpu(0, "NVIDIA H200", "GPU-a", (9, 0))
# A path of Python with spaces cannot stand behind #!; to Python the shell's line is a text.
FAKE_NCU = """#!/bin/sh
''':'
exec "{python}" -S "$0" "$@"
'''
import json, os, sys, time
words = sys.argv[1:]
with open({folder!r} + "/calls", "a") as calls:
    print(json.dumps({{"words": words, "gpu": os.environ.get("CUDA_VISIBLE_DEVICES")}}), file=calls)
wanted = words[words.index("--metrics") + 1].split(",")
report = words[words.index("--export") + 1]
def done():
    open(report, "w").close()
    sys.exit(0)
{body}
"""


def counted(names: list[str], value: float = 32.0, unit: str = "inst") -> list[Metric]:
    return [{"metric": name, "unit": unit, "value": value} for name in names]


class Ncu:
    """A fake `ncu`, of which a test says what it does."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.launches = [counted(BANKS)] * 2
        (folder / "calls").touch()
        path = folder / "ncu"
        monkeypatch.setattr(
            "ladder.measure.ncu.find_tool",
            lambda name: str(path) if path.is_file() else None,
        )
        monkeypatch.setattr(
            "ladder.measure.ncu.read_report", lambda report, metrics: self.launches
        )

    def does(self, body: str) -> None:
        """Install it; `body` runs with `wanted`, `report` and `done()` at hand."""
        path = self.folder / "ncu"
        path.write_text(
            FAKE_NCU.format(python=sys.executable, folder=str(self.folder), body=body)
        )
        path.chmod(0o755)

    def count(self, timeout_s: float = 30.0) -> tuple[list[list[Metric]], list[Note]]:
        words = "-m ladder.measure.process profile plan cubins"
        command = [sys.executable, *words.split()]
        with Path(os.devnull).open() as lock:
            program = GpuProgram(GPU, lock.fileno(), command)
            return Profiler(program, [2, 3], timeout_s).count(BANKS)

    @property
    def calls(self) -> list[Fields]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def wanted(self, call: int) -> list[str]:
        """Metrics of one call."""
        words = self.calls[call]["words"]
        metrics: str = words[words.index("--metrics") + 1]
        return metrics.split(",")


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ncu:
    return Ncu(tmp_path, monkeypatch)


# Which metrics ncu gets.


def test_ncu_leaves_the_clocks_alone_and_profiles_the_range_of_the_chosen_cells(
    ncu: Ncu,
) -> None:
    ncu.does("done()")
    ncu.count()
    (call,) = ncu.calls
    words = " ".join(call["words"])
    assert "--clock-control none --profile-from-start off" in words
    assert words.endswith("-m ladder.measure.process profile plan cubins [2, 3]")
    assert call["gpu"] == "GPU-a"
    assert ncu.wanted(0) == BANKS


# What comes of it.


@pytest.mark.parametrize(("at_once", "calls"), [(False, 3), (True, 2)])
def test_metrics_that_ncu_does_not_know_are_left_out_and_noted(
    ncu: Ncu, at_once: bool, calls: int
) -> None:
    unknown = [BANKS[1], BANKS[4]]
    ncu.does(
        f"""
names = [name for name in {unknown!r} if name in wanted]
if names:
    named = ", ".join(names) if {at_once} else names[0]
    print("==ERROR== Failed to find metrics: " + named, file=sys.stderr)
    sys.exit(1)
done()"""
    )
    known = [name for name in BANKS if name not in unknown]
    ncu.launches = [counted(known)] * 2
    launches, notes = ncu.count()
    assert launches == ncu.launches
    assert ncu.wanted(calls - 1) == known
    assert len(ncu.calls) == calls
    reason = "this ncu does not know the metric"
    assert notes == [{"subject": name, "reason": reason} for name in unknown]


def test_a_metric_without_a_value_is_noted(ncu: Ncu) -> None:
    ncu.does("done()")
    ncu.launches = [counted(BANKS[1:]), counted(BANKS[2:])]
    _, notes = ncu.count()
    assert notes == [
        {"subject": BANKS[0], "reason": "the report has no value for this GPU"}
    ]


# Why nothing can be had.

PERMISSION = """
print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
sys.exit({code})"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            PERMISSION.format(code=1),
            "ERR_NVGPUCTRPERM.*NVreg_RestrictProfilingToAdminUsers",
        ),
        (PERMISSION.format(code=0), "ERR_NVGPUCTRPERM"),
        ("print('==ERROR== out of luck'); sys.exit(9)", "exit code 9: .*out of luck"),
        ("print('nothing was profiled')", "wrote no report: .*nothing was profiled"),
        (
            "print('Failed to find metric ' + wanted[0]); sys.exit(1)",
            "knows none of the metrics",
        ),
        (
            "print('Failed to find metric something.else'); sys.exit(1)",
            "refused a metric: .*something.else",
        ),
        ("time.sleep(60)", "did not finish within 0.3 s"),
    ],
)
def test_the_reason_is_noted(ncu: Ncu, body: str, reason: str) -> None:
    ncu.does(body)
    with pytest.raises(ProfilerUnavailable, match=reason):
        ncu.count(timeout_s=0.3 if "sleep" in body else 30.0)


def test_without_ncu_the_reason_says_so(ncu: Ncu) -> None:
    with pytest.raises(
        ProfilerUnavailable, match=r"ncu \(Nsight Compute\) was not found"
    ):
        ncu.count()


def test_nothing_is_profiled_that_could_not_be_read(
    ncu: Ncu, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu.does("done()")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ProfilerUnavailable, match="pip install ncu-report"):
        ncu.count()
    assert ncu.calls == []


@pytest.mark.parametrize("count", [1, 3])
def test_counters_are_not_given_to_the_wrong_cells(ncu: Ncu, count: int) -> None:
    ncu.does("done()")
    ncu.launches = [counted(BANKS)] * count
    with pytest.raises(
        ProfilerUnavailable, match=f"saw {count} launches where 2 were wanted"
    ):
        ncu.count()


# The report's reader, with a reading library that the test plays.

NCU_REPORT = """
import sys

class Metric:
    def __init__(self, value, unit):
        self._value, self._unit = value, unit
    def value(self):
        return self._value
    def unit(self):
        return self._unit

def load_report(path):
    ranges = eval(open(path).read())
    return [
        [{name: Metric(*parts) for name, parts in action.items()} for action in actions]
        for actions in ranges
    ]
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `ncu_report` comes before the installed one."""
    (tmp_path / "ncu_report.py").write_text(NCU_REPORT)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT / 'workflow'}")
    return tmp_path


def test_a_report_is_read_launch_by_launch_across_ranges(library: Path) -> None:
    report = library / "report.ncu-rep"
    ranges = [
        [{"a.sum": (3, "inst"), "b.pct": (0.5, "%"), "unwanted": (1, "")}],
        [{"a.sum": (4, None)}, {"b.pct": (None, "%")}],
    ]
    report.write_text(repr(ranges))
    assert read_report(report, ["a.sum", "b.pct", "c.sum"]) == [
        [
            {"metric": "a.sum", "unit": "inst", "value": 3.0},
            {"metric": "b.pct", "unit": "%", "value": 0.5},
        ],
        [{"metric": "a.sum", "unit": "", "value": 4.0}],
        [],
    ]


def test_a_reader_that_fails_is_a_reason(library: Path) -> None:
    report = library / "report.ncu-rep"
    report.write_text("no report")
    with pytest.raises(
        ProfilerUnavailable, match=r"(?s)could not be read .exit code 1.*SyntaxError"
    ):
        read_report(report, BANKS)


# The step.


class Step(Lab):
    """A sweep whose cells have times but no counters, and `ladder profile` with a GPU that is made up."""

    sweep = "fp32_ladder"

    def profile(self) -> None:
        words = ["--root", str(self.root), "profile"]
        assert main([*words, str(self.folder.plan(self.sweep))]) == 0

    @property
    def counted(self) -> list[Record]:
        return [
            one
            for one in read_store(self.folder.records)
            if one.cell.regime == COUNTERS
        ]

    @property
    def notes(self) -> list[Note]:
        found: Any = read_json(self.folder.account("profiled", self.sweep))
        return list(found["notes"])


@pytest.fixture
def step(ncu: Ncu, monkeypatch: pytest.MonkeyPatch) -> Step:
    for name, value in {
        "ladder.measure.profile_job.find_gpus": lambda: [GPU],
        "ladder.measure.profile_job.driver_version": lambda: "580.95",
        "ladder.measure.host.ncu_version": lambda: "2025.3",
        "ladder.measure.gpu_job.process_command": lambda *_: ["program"],
        "ladder.measure.host.card_facts": lambda uuid: {"uuid": uuid},
        "ladder.cli.measure.end_with_parent": lambda: None,
        "tempfile.gettempdir": lambda: str(ncu.folder),
    }.items():
        monkeypatch.setattr(name, value)
    step = Step(ncu.folder / "project")
    step.record([step.sweep], metrics=False)
    ncu.launches = [counted(BANKS)] * 5
    return step


def test_the_step_records_the_counters_of_each_cell(step: Step, ncu: Ncu) -> None:
    ncu.does("done()")
    step.profile()
    plan = step.plans()[step.sweep]
    cells = [task.cell.in_regime(COUNTERS) for task in plan.tasks if task.counted]
    assert {one.cell.id for one in step.counted} == {cell.id for cell in cells}
    assert len(cells) == 5
    assert all(one.result["observations"] == counted(BANKS) for one in step.counted)
    assert {one.conditions.host["ncu"] for one in step.counted} == {"2025.3"}
    assert ncu.calls[0]["gpu"] == "GPU-a", "on the GPU whose lock it holds"
    assert step.notes == []
    step.profile()
    assert len(ncu.calls) == 1, "nothing is counted again"
    sessions = read_store(step.folder.records).sessions
    assert {sessions[one.session].gpu["uuid"] for one in step.counted} == {"GPU-a"}


def test_only_cells_that_were_measured_well_are_counted(step: Step, ncu: Ncu) -> None:
    def wrong(place: Place, record: Fields) -> Fields:
        return (
            failed("incorrect", "wrong")(record)
            if place.entry.rung == "coalesced"
            else record
        )

    ncu.does("done()")
    step.finished = "2026-11-21T10:20:00Z"
    step.record([step.sweep], wrong, metrics=False)
    ncu.launches = [counted(BANKS)] * 4
    step.profile()
    assert "gemm_naive-fp32" not in {one.variant for one in step.counted}
    assert len(step.counted) == 4


def test_what_cannot_be_had_becomes_a_note_and_is_tried_again_next_time(
    step: Step, ncu: Ncu
) -> None:
    ncu.does(PERMISSION.format(code=1))
    step.profile()
    assert step.counted == []
    (note,) = step.notes
    assert note["subject"] == "counters"
    assert "ERR_NVGPUCTRPERM" in note["reason"]
    ncu.does("done()")
    step.profile()
    assert (len(step.counted), step.notes) == (5, [])


def test_a_disabled_profiler_is_noted_and_not_run(step: Step, ncu: Ncu) -> None:
    step.settings = {"profile": {"enabled": False}}
    step.compile(step.sweeps()[step.sweep])
    step.profile()
    assert step.notes == [
        {
            "subject": "counters",
            "reason": "profile.enabled is false in the configuration",
        }
    ]
    assert ncu.calls == step.counted == []
