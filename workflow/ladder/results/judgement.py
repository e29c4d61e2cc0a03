"""The judgement of one kernel: what became of it at each size and regime, and the verdict."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ladder.measure.plan_records import WRONG, PlanRecords
from ladder.model.errors import LadderError
from ladder.model.plan import Task
from ladder.model.schemas import SIZE_COLUMNS
from ladder.results import tables
from ladder.results.collect import collect_sweep, summarised
from ladder.results.sessions import prepare_sessions
from ladder.results.statistics import estimate, records
from ladder.results.templates import TEMPLATES
from ladder.results.verdicts import widened

VERDICTS = ("faster", "tie", "slower", "wrong", "broken")
"""Verdicts, at the place of their exit code."""
_DEVIATIONS = {"speedup": 1.0, "elsewhere": math.sqrt(2.0)}
"""How many times the deviation of its class the two intervals hold of a kernel that one session on one GPU read: its
speed-up, and another GPU on another kind of host. `results/prediction.py` has the same for a cell of one session.
"""

Outcome = tuple[str, str, Mapping[str, Any]]
"""Status, reason, and the result of a record, which is empty where there is none."""
JudgedCell = dict[str, Any]
"""What became of the kernel at a size in a regime, as docs/judge.md has it; None where there is no number."""


def outcome(view: PlanRecords, task: Task, regime: str = "") -> Outcome:
    """What became of a task in a regime (the plan's first). Raises LadderError where it could not be measured."""
    if task.launch is None:
        return "unsupported", task.absent or "", {}
    if (why := view.plan.broken(task)) is not None:
        return view.plan.variants[task.variant]["status"], why, {}
    where = (
        f"{task.variant} at {dict(task.cell.size)}, {regime or view.plan.regimes[0]}"
    )
    record = view.current_record(task, regime)
    if record is None:
        raise LadderError(f"{where}: it was not measured")
    # What the host does says nothing of the kernel.
    if record.status == "launch_error" and record.result.get("transient"):
        raise LadderError(f"not judged: {where}: {record.reason}")
    return record.status, record.reason, record.result


class _Deviations:
    """How far GPUs differ by class of cells, as components.csv has it."""

    def __init__(self, view: PlanRecords, components: pd.DataFrame | None) -> None:
        self._of_class = dict[str, float]()
        self._classes = dict[tuple[Any, ...], str]()
        if components is None or components.empty:
            return
        self._of_class = {row["class"]: row["deviation"] for row in records(components)}
        for row in records(prepare_sessions(collect_sweep(view)["sessions"])):
            size = (row[name] for name in SIZE_COLUMNS if row[name] is not None)
            self._classes[(*size, row["regime"])] = row["class"]

    def of(self, task: Task, regime: str) -> float | None:
        """The deviation of a cell's class; the largest of any class where it has none; None without a table."""
        if not self._of_class:
            return None
        name = self._classes.get((*task.cell.size.values(), regime), "")
        return self._of_class.get(name, max(self._of_class.values()))


def _cell(
    view: PlanRecords, deviations: _Deviations, task: Task, regime: str
) -> JudgedCell:
    status, reason, result = outcome(view, task, regime)
    summary, check = summarised(result), result.get("check") or {}
    cell: JudgedCell = {
        "size": dict(task.cell.size),
        "regime": regime,
        "status": status,
        "reason": reason,
        "median_us": summary.get("median_us"),
        "low": summary.get("median_us_low"),
        "high": summary.get("median_us_high"),
        "reference": summary.get("reference"),
        "speedup": summary.get("speedup"),
        "speedup_low": None,
        "speedup_high": None,
        "elsewhere_low": None,
        "elsewhere_high": None,
    }
    if status == "ok":
        speedup, deviation = estimate(summary, "speedup"), deviations.of(task, regime)
        cell |= {"speedup_low": speedup.low, "speedup_high": speedup.high}
        if deviation is not None:
            for where, times in _DEVIATIONS.items():
                interval = widened(speedup, times * deviation)
                cell |= {f"{where}_low": interval.low, f"{where}_high": interval.high}
    return cell | {
        name: check.get(name) for name in ("launches", "max_error", "error_bound")
    }


def cells_of(
    view: PlanRecords, components: pd.DataFrame | None = None
) -> list[JudgedCell]:
    """The cells of a plan in its order; `components` is the table of that name, of the GPU's model if there is one.

    Raises LadderError for a cell that was not measured, or whose reference failed in the first regime.
    """
    deviations, cells = _Deviations(view, components), []
    for task in view.plan.tasks:
        for regime in view.plan.regimes_of(task):
            cell = _cell(view, deviations, task, regime)
            # What a reference does wrong says nothing of the kernel.
            of_reference = cell["reason"].startswith(("the reference ", "no reference"))
            if of_reference and regime == view.plan.regimes[0]:
                raise LadderError(f"not judged: {cell['reason']}")
            cells.append(cell)
    return cells


def decide(cells: Sequence[JudgedCell]) -> tuple[int, list[JudgedCell]]:
    """The place in VERDICTS, and the cells that decide; speed counts in the first regime.

    There alone `unsupported` counts, too: most kernels take too long for warm.
    """
    first = [cell for cell in cells if cell["regime"] == cells[0]["regime"]]
    failed = [cell for cell in cells if cell["status"] not in ("ok", "unsupported")]
    failed += [cell for cell in first if cell["status"] == "unsupported"]
    if failed:
        wrong = [cell for cell in failed if cell["status"] in WRONG]
        return (
            (VERDICTS.index("wrong"), wrong)
            if wrong
            else (VERDICTS.index("broken"), failed)
        )
    slower = [cell for cell in first if cell["speedup_high"] < 1]
    if slower:
        return VERDICTS.index("slower"), slower
    tied = [cell for cell in first if cell["speedup_low"] <= 1]
    return (VERDICTS.index("tie"), tied) if tied else (VERDICTS.index("faster"), first)


def text(variant: str, device: str, cells: Sequence[JudgedCell]) -> str:
    """A line a cell and the verdict, for people to read."""
    code, because = decide(cells)
    said = {"variant": variant, "device": device, "cells": cells, "because": because}
    return TEMPLATES.get_template("judge.j2").render(said, verdict=VERDICTS[code])


def components_for(folders: Sequence[Any], slug: str) -> pd.DataFrame | None:
    """components.csv of the published folder of a device; None without any, since no other model speaks for it."""
    for folder in folders:
        if folder.root.name == slug:
            components = tables.read("components", folder.tables, required=False)
            return components if len(components) else None
    return None
