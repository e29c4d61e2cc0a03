"""The judgement of one kernel: what became of it at each size and regime, and the verdict."""

from collections.abc import Mapping, Sequence
from typing import Any

from ladder.measure.view import View
from ladder.model.errors import LadderError
from ladder.model.plan import Task
from ladder.results.collect import figures
from ladder.results.templates import TEMPLATES

VERDICTS = ("right", "slower", "wrong", "broken")
"""By the exit code that they have."""
_WRONG = ("incorrect", "out_of_bounds", "stateful")

Outcome = tuple[str, str, Mapping[str, Any]]
"""Status, reason, and the result of a record, which is empty where there is none."""
Cell = dict[str, Any]
"""What became of the kernel at a size in a regime, as docs/judge.md has it; None where there is no number."""


def outcome(view: View, task: Task, regime: str = "") -> Outcome:
    """What became of a task in a regime (the plan's first). Raises LadderError where it was not measured."""
    if task.launch is None:
        return "unsupported", task.absent or "", {}
    if (why := view.plan.broken(task)) is not None:
        return view.plan.variants[task.variant]["status"], why, {}
    if (record := view.find(task, regime)) is None:
        where = f"{dict(task.cell.size)}, {regime or view.plan.regimes[0]}"
        raise LadderError(f"{task.variant} at {where}: it was not measured")
    return record.status, record.reason, record.result


def _cell(view: View, task: Task, regime: str) -> Cell:
    status, reason, result = outcome(view, task, regime)
    known, check = figures(result), result.get("check") or {}
    found: Cell = {"size": dict(task.cell.size), "regime": regime, "status": status, "reason": reason}
    found |= {name: known.get(f"median_us{end}") for name, end in _TIMES.items()}
    found |= {name: known.get(name) for name in ("reference", "speedup", "speedup_low", "speedup_high")}
    return found | {name: check.get(name) for name in ("launches", "max_error", "error_bound")}


_TIMES = {"median_us": "", "low": "_low", "high": "_high"}


def cells_of(view: View) -> list[Cell]:
    """The cells of a plan in its order. Raises LadderError for one that was not measured."""
    return [_cell(view, task, regime) for task in view.plan.tasks for regime in view.plan.regimes_of(task)]


def decide(cells: Sequence[Cell]) -> tuple[int, list[Cell]]:
    """The place in VERDICTS, and the cells that decide; speed counts in the first regime.

    There alone `unsupported` counts, too: most kernels take too long for warm.
    """
    first = [one for one in cells if one["regime"] == cells[0]["regime"]]
    failed = [one for one in cells if one["status"] not in ("ok", "unsupported")]
    failed += [one for one in first if one["status"] == "unsupported"]
    wrong = [one for one in failed if one["status"] in _WRONG]
    slower = [one for one in first if not failed and one["speedup_high"] < 1]
    by_code = ((2, wrong), (3, failed), (1, slower), (0, first))
    return next((code, found) for code, found in by_code if found)


def text(variant: str, device: str, cells: Sequence[Cell]) -> str:
    """A line a cell and the verdict, for people to read."""
    code, because = decide(cells)
    known = {"variant": variant, "device": device, "cells": cells, "because": because}
    return TEMPLATES.get_template("judge.j2").render(known, verdict=VERDICTS[code])
