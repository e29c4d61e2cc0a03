"""The profiler step with an `ncu` that the test plays: what is asked, what is noted, and why nothing can be had."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from ladder.cli import profile as profile_step
from ladder.gpu.discovery import FoundGpu
from ladder.measure import profiler
from ladder.measure.profiler import (
    METRIC_GROUPS,
    ProfilerUnavailable,
    profile,
    profiled_cells,
    read_report,
    wanted_metrics,
)
from ladder.measure.store import read_records, write_records
from ladder.model.plan import write_plan

BANKS = list(METRIC_GROUPS["banks"])
FAKE_NCU = """#!{python}
import json, os, sys, time
words = sys.argv[1:]
with open({folder!r} + "/calls", "a") as calls:
    print(json.dumps({{"words": words, "gpu": os.environ.get("CUDA_VISIBLE_DEVICES")}}), file=calls)
asked = words[words.index("--metrics") + 1].split(",")
report = words[words.index("--export") + 1]
def done():
    open(report, "w").close()
    sys.exit(0)
{body}
"""
SMALL, LARGE = {"elements": 64}, {"elements": 4096}


def make_plan() -> dict[str, Any]:
    """Two variants at two sizes, counters at the large one; one cell is unsupported."""
    cells: list[dict[str, Any]] = [
        {"variant": variant, "kernel": "k", "dtype": "fp32", "size": size, "launch": {}, "references": []}
        for size in (SMALL, LARGE)
        for variant in ("wide", "narrow")
    ]
    cells.append({"variant": "other", "kernel": "k", "dtype": "fp32", "size": LARGE, "unsupported": "no"})
    return {
        "sweep": "scripted",
        "counter_groups": ["banks"],
        "counter_sizes": [LARGE],
        "counter_variants": ["wide", "narrow", "other"],
        "cells": cells,
    }


def make_records(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": f"key {index}", "variant": cell["variant"], "size": cell["size"], "status": "ok"}
        for index, cell in enumerate(plan["cells"])
    ]


class Ncu:
    """A fake `ncu` first on the PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.launches: list[dict[str, tuple[float, str]]] = [dict.fromkeys(BANKS, (32.0, "inst"))] * 2
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(profiler, "_toolkit_ncu", lambda: None)
        monkeypatch.setattr(profiler, "read_report", lambda report, metrics: self.launches)

    def does(self, body: str) -> None:
        """Install it; `body` runs with `asked`, `report` and `done()` at hand."""
        path = self.folder / "ncu"
        path.write_text(FAKE_NCU.format(python=f"{sys.executable} -S", folder=str(self.folder), body=body))
        path.chmod(0o755)

    def profile(self, timeout_s: float = 30.0) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-a"}
        place = Path("place")
        lock = os.open(os.devnull, os.O_RDONLY)
        try:
            return profile(place / "p.json", make_plan(), place, place, [2, 3], timeout_s, environment, lock)
        finally:
            os.close(lock)

    @property
    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def asked(self, call: int) -> list[str]:
        """Metrics asked for in one call."""
        words = self.calls[call]["words"]
        metrics: str = words[words.index("--metrics") + 1]
        return metrics.split(",")


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ncu:
    return Ncu(tmp_path, monkeypatch)


# What is asked for.


def test_metrics_of_groups_come_once_each_and_in_order() -> None:
    assert wanted_metrics(["banks"]) == BANKS
    both = wanted_metrics(["compute", "banks", "compute"])
    assert both == [*METRIC_GROUPS["compute"], *BANKS]
    assert wanted_metrics([]) == []


def test_only_cells_that_were_measured_well_at_the_counter_sizes_are_profiled() -> None:
    plan = make_plan()
    records = make_records(plan)
    assert profiled_cells(plan, records) == [2, 3]
    records[3]["status"] = "incorrect"
    assert profiled_cells(plan, records) == [2]
    assert profiled_cells(plan, records[:2]) == [], "the small size does not count"
    assert profiled_cells(plan, []) == []
    plan["counter_variants"] = ["narrow"]
    assert profiled_cells(plan, make_records(plan)) == [3]


def test_ncu_leaves_the_clocks_alone_and_profiles_the_range_of_the_chosen_cells(ncu: Ncu) -> None:
    ncu.does("done()")
    ncu.profile()
    (call,) = ncu.calls
    words = call["words"]
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert "ladder.profile_worker" in words
    assert json.loads(words[-1]) == [2, 3]
    assert call["gpu"] == "GPU-a"
    assert ncu.asked(0) == BANKS


# What comes of it.


def test_each_launch_gives_its_cell_its_metrics_with_units(ncu: Ncu) -> None:
    ncu.does("done()")
    ncu.launches = [{BANKS[0]: (0.0, "")}, {name: (float(at), "inst") for at, name in enumerate(BANKS)}]
    found, notes = ncu.profile()
    assert [entry["cell"] for entry in found] == [2, 3]
    assert found[0]["metrics"] == [{"metric": BANKS[0], "unit": "", "value": 0.0}]
    assert [metric["value"] for metric in found[1]["metrics"]] == list(range(len(BANKS)))
    assert notes == []


@pytest.mark.parametrize(
    "message", ["==ERROR== Failed to find metric {name}", "==ERROR== Failed to find metrics: {name}\n"]
)
def test_a_metric_that_ncu_does_not_know_is_left_out_and_noted(ncu: Ncu, message: str) -> None:
    unknown = [BANKS[1], BANKS[4]]
    ncu.does(
        f"""
for name in {unknown!r}:
    if name in asked:
        print({message!r}.format(name=name), file=sys.stderr)
        sys.exit(1)
done()"""
    )
    ncu.launches = [{name: (1.0, "inst") for name in BANKS if name not in unknown}] * 2
    found, notes = ncu.profile()
    assert [ncu.asked(call) for call in range(3)] == [
        BANKS,
        [name for name in BANKS if name != unknown[0]],
        [name for name in BANKS if name not in unknown],
    ]
    assert len(found) == 2
    assert notes == [{"subject": name, "reason": "this ncu does not know the metric"} for name in unknown]


def test_several_unknown_metrics_of_one_message_are_left_out_at_once(ncu: Ncu) -> None:
    ncu.does(
        f"""
if {BANKS[1]!r} in asked:
    print("==ERROR== Failed to find metrics: {BANKS[1]}, {BANKS[4]}", file=sys.stderr)
    sys.exit(1)
done()"""
    )
    _, notes = ncu.profile()
    assert [note["subject"] for note in notes] == [BANKS[1], BANKS[4]]
    assert len(ncu.calls) == 2


def test_a_metric_without_a_value_is_noted(ncu: Ncu) -> None:
    ncu.does("done()")
    ncu.launches = [dict.fromkeys(BANKS[1:], (1.0, "")), dict.fromkeys(BANKS[2:], (1.0, ""))]
    _, notes = ncu.profile()
    assert notes == [{"subject": BANKS[0], "reason": "the report has no value for this GPU"}]


# Why nothing can be had.

PERMISSION = """
print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
sys.exit({code})"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (PERMISSION.format(code=1), "ERR_NVGPUCTRPERM.*NVreg_RestrictProfilingToAdminUsers"),
        (PERMISSION.format(code=0), "ERR_NVGPUCTRPERM"),
        ("print('==ERROR== out of luck'); sys.exit(9)", "exit code 9: .*out of luck"),
        ("print('nothing was profiled')", "wrote no report: .*nothing was profiled"),
        ("print('Failed to find metric ' + asked[0]); sys.exit(1)", "knows none of the metrics"),
        ("print('Failed to find metric something.else'); sys.exit(1)", "refused a metric: .*something.else"),
        ("time.sleep(60)", "did not finish within 0.3 s"),
    ],
)
def test_the_reason_is_told(ncu: Ncu, body: str, reason: str) -> None:
    ncu.does(body)
    with pytest.raises(ProfilerUnavailable, match=reason):
        ncu.profile(timeout_s=0.3 if "sleep" in body else 30.0)


def test_without_ncu_the_reason_says_so(ncu: Ncu) -> None:
    with pytest.raises(ProfilerUnavailable, match=r"ncu \(Nsight Compute\) was not found"):
        ncu.profile()


@pytest.mark.parametrize("count", [1, 3])
def test_counters_are_not_given_to_the_wrong_cells(ncu: Ncu, count: int) -> None:
    ncu.does("done()")
    ncu.launches = [dict.fromkeys(BANKS, (1.0, ""))] * count
    with pytest.raises(ProfilerUnavailable, match=f"saw {count} launches where 2 were asked for"):
        ncu.profile()


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

class Action:
    def __init__(self, metrics):
        self._metrics = metrics
    def metric_names(self):
        return tuple(self._metrics)
    def metric_by_name(self, name):
        return Metric(*self._metrics[name])

class Range:
    def __init__(self, actions):
        self._actions = actions
    def num_actions(self):
        return len(self._actions)
    def action_by_idx(self, index):
        return Action(self._actions[index])

class Context:
    def __init__(self, path):
        self._ranges = eval(open(path).read())
    def num_ranges(self):
        return len(self._ranges)
    def range_by_idx(self, index):
        return Range(self._ranges[index])

def load_report(path):
    return Context(path)
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
        [{"a.sum": (3, "inst"), "b.pct": (0.5, "%"), "unasked": (1, "")}],
        [{"a.sum": (4, None)}, {"b.pct": (None, "%")}],
    ]
    report.write_text(repr(ranges))
    assert read_report(report, ["a.sum", "b.pct", "c.sum"]) == [
        {"a.sum": (3.0, "inst"), "b.pct": (0.5, "%")},
        {"a.sum": (4.0, "")},
        {},
    ]


def test_a_reader_that_fails_is_a_reason(library: Path) -> None:
    report = library / "report.ncu-rep"
    report.write_text("no report")
    with pytest.raises(ProfilerUnavailable, match=r"(?s)could not be read .exit code 1.*SyntaxError"):
        read_report(report, BANKS)


# The step.


class Step:
    """`ladder profile` on a measured plan, with a GPU that is made up."""

    def __init__(self, ncu: Ncu) -> None:
        self.ncu = ncu
        self.folder = ncu.folder
        self.plan = make_plan()
        self.out = self.folder / "profile.jsonl"
        gpus = [FoundGpu(0, "Made-up GPU", "GPU-a", (9, 0))]
        ncu.monkeypatch.setattr("ladder.discovery.find_gpus", lambda: gpus)
        ncu.monkeypatch.setattr("ladder.supervisor.end_with_parent", lambda parent: None)
        ncu.monkeypatch.setattr("tempfile.gettempdir", lambda: str(self.folder))
        ncu.monkeypatch.setattr("tempfile.tempdir", str(self.folder))
        self.records = make_records(self.plan)

    def run(self, change: Callable[[dict[str, Any]], object] = lambda plan: None, *options: str) -> None:
        change(self.plan)
        write_plan(self.plan, self.folder / "plan.json")
        write_records(self.folder / "cells.jsonl", self.records)
        parser = argparse.ArgumentParser()
        profile_step.configure(parser)
        place = str(self.folder)
        words = ["--plan", f"{place}/plan.json", "--cubins", place, "--harness", place]
        words += ["--cells", f"{place}/cells.jsonl", "--out", str(self.out), *options]
        assert profile_step.run(parser.parse_args(words)) == 0

    @property
    def written(self) -> list[dict[str, Any]]:
        return read_records(self.out)


@pytest.fixture
def step(ncu: Ncu) -> Step:
    return Step(ncu)


def test_the_step_records_the_counters_of_each_cell(step: Step) -> None:
    step.ncu.does("done()")
    step.run()
    assert [(record["variant"], record["size"]) for record in step.written] == [
        ("wide", LARGE),
        ("narrow", LARGE),
    ]
    assert step.written[0]["metrics"][0] == {"metric": BANKS[0], "unit": "inst", "value": 32.0}
    assert step.ncu.calls[0]["gpu"] == "GPU-a", "on the GPU whose lock it holds"


def test_unchanged_cells_are_not_profiled_again_and_changed_ones_are(step: Step) -> None:
    step.ncu.does("done()")
    step.run()
    before = step.written
    step.run()
    assert step.written == before
    assert len(step.ncu.calls) == 1
    step.records[3]["key"] = "measured anew"
    step.ncu.launches = [dict.fromkeys(BANKS, (7.0, ""))]
    step.run()
    assert json.loads(step.ncu.calls[1]["words"][-1]) == [3]
    assert step.written[0] == before[0]
    assert step.written[1]["metrics"][0]["value"] == 7.0


def test_what_cannot_be_had_becomes_a_note_and_is_tried_again_next_time(step: Step) -> None:
    step.ncu.does(PERMISSION.format(code=1))
    step.run()
    (record,) = step.written
    assert record["note"]["subject"] == "counters"
    assert "ERR_NVGPUCTRPERM" in record["note"]["reason"]
    step.ncu.does("done()")
    step.run()
    assert [record["variant"] for record in step.written] == ["wide", "narrow"]


def test_a_disabled_profiler_is_noted_and_not_run(step: Step) -> None:
    step.run(lambda plan: None, "--disabled")
    assert step.written == [
        {"note": {"subject": "counters", "reason": "profile.enabled is false in the configuration"}}
    ]
    assert step.ncu.calls == []


def test_a_sweep_without_counters_has_neither_counters_nor_notes(step: Step) -> None:
    step.run(lambda plan: plan.update(counter_groups=[]))
    assert step.written == []
    assert step.out.is_file()
    assert step.ncu.calls == []
