"""The judgement of one kernel: what became of it at each size and regime, and the verdict."""

import math
from collections.abc import Sequence
from typing import Any

from pandas import DataFrame

from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records
from ladder.model.errors import LadderError
from ladder.model.plan import Plan, Task
from ladder.model.schemas import TableRow
from ladder.results.collect import collect_sweep, summarised, throttled
from ladder.results.sessions import prepare_sessions
from ladder.results.statistics import Estimate, estimate, ratio, records, size_of

UNSEEN: dict[str, list[str]] = {
    "compiled": [],
    "opaque": [
        "registers, spills, and memory that outlives a launch",
        "writes beyond memory that the launcher allocates itself",
        "what its host code does in the process that measures: it is no sandbox",
    ],
}
"""What is not seen of a kernel, by how far it can be looked into."""
EXIT_CODES = {
    "compiles": 0,
    "faster": 0,
    "tie": 1,
    "slower": 2,
    "wrong": 3,
    "refused": 3,
    "broken": 4,
    "incomplete": 4,
}
"""By verdict."""
_FAILED = {
    "wrong": ("incorrect",),
    "refused": ("out_of_bounds", "stateful"),
    "broken": ("compile_error", "launch_error", "timeout"),
    "incomplete": ("unsupported",),
}
"""Verdict -> the statuses that lead to it, the first verdict that has any ahead of others."""
_FIELDS = """size regime status reason median_us low high reference speedup speedup_low speedup_high
elsewhere_low elsewhere_high launches max_error error_bound sm_clock_mhz throttled registers spill_store_bytes
local_bytes shared_bytes_static shared_bytes_dynamic compile_log"""
FIELDS = _FIELDS.split()
"""Of a cell in JSON."""
_DEVIATIONS = {"speedup": 1.0, "elsewhere": math.sqrt(2.0)}
"""How many times the deviation of its class the two intervals hold of a kernel that one session on one GPU read: its
speed-up, and another GPU on another kind of host. `results/prediction.py` has the same for a cell of one session.
"""

Outcome = tuple[str, str, TableRow]
"""Status, reason, and the result of a record, which is empty where there is none."""
JudgedCell = TableRow
"""What became of the kernel at a size in a regime, as docs/judge.md has it; None where there is no number."""


def outcome(view: PlanRecords, task: Task, regime: str | None) -> Outcome:
    """What became of a task in a regime, or by its compiler alone (None).

    Raises LadderError where it could not be measured.
    """
    if task.launch is None:
        return "unsupported", task.absent or "", {}
    why = view.plan.broken(task)
    if why is not None:
        return view.plan.variants[task.variant]["status"], why, {}
    if regime is None:
        return "ok", "", {}
    cell = f"{task.variant} at {dict(task.cell.size)}, {regime}"
    record = view.current_record(task, regime)
    if record is None:
        raise LadderError(f"{cell}: it was not measured")
    # What the host does says nothing of the kernel.
    if record.status == "launch_error" and record.result.get("transient"):
        raise LadderError(f"not judged: {cell}: {record.reason}")
    return record.status, record.reason, dict(record.result)


def _deviations(
    view: PlanRecords, components: DataFrame
) -> dict[tuple[Any, ...], float]:
    """How far GPUs differ, by size and regime: by the class of the cell, else by the class that differs most."""
    by_class = components.set_index("class")["deviation"]
    if by_class.empty:
        return {}
    sessions = prepare_sessions(collect_sweep(view)["sessions"])
    deviations = {}
    for row in records(sessions):
        cell = (*size_of(row).values(), row["regime"])
        deviations[cell] = float(by_class.get(row["class"], by_class.max()))
    return deviations


def compiled_cells(plan: Plan) -> list[JudgedCell]:
    """A cell a size, without a regime: `ok` where the kernel compiles and can be launched."""
    view = PlanRecords(plan, Records())
    return [_cell(view, task, None, None) for task in plan.tasks]


def _cell(
    view: PlanRecords, task: Task, regime: str | None, deviation: float | None
) -> JudgedCell:
    """`regime`: None of a cell that is not launched."""
    status, reason, result = outcome(view, task, regime)
    summary, device = summarised(result), result.get("device") or {}
    known = {**summary, **device, **(result.get("check") or {})}
    known |= view.plan.variants.get(task.variant, {})
    cell = {name: known.get(name) for name in FIELDS}
    cell |= {
        "size": dict(task.cell.size),
        "regime": regime,
        "status": status,
        "reason": reason,
        "low": known.get("median_us_low"),
        "high": known.get("median_us_high"),
        "throttled": throttled(device.get("clock_events")),
    }
    if status == "ok" and deviation is not None:
        for interval, times in _DEVIATIONS.items():
            apart = math.exp(times * deviation)
            # Independent half-widths of logarithms add up as squares.
            wide = ratio(estimate(summary, "speedup"), Estimate(1.0, 1 / apart, apart))
            cell |= {f"{interval}_low": wide.low, f"{interval}_high": wide.high}
    return cell


def cells_of(view: PlanRecords, components: DataFrame) -> list[JudgedCell]:
    """The cells of a plan in its order; `components` is the table of the GPU's model, empty where there is none.

    Raises LadderError for a cell that was not measured, or whose reference failed in the first regime.
    """
    deviations = _deviations(view, components)
    cells = []
    for task in view.plan.tasks:
        for regime in view.plan.regimes_of(task):
            place = (*task.cell.size.values(), regime)
            cell = _cell(view, task, regime, deviations.get(place))
            # What a reference does wrong says nothing of the kernel.
            of_reference = cell["reason"].startswith(("the reference ", "no reference"))
            if of_reference and regime == view.plan.regimes[0]:
                raise LadderError(f"not judged: {cell['reason']}")
            cells.append(cell)
    return cells


def decide(cells: Sequence[JudgedCell]) -> tuple[str, list[JudgedCell]]:
    """The verdict, and the cells that decide; speed counts in the first regime.

    There alone `unsupported` counts, too: most kernels take too long for warm.
    """
    first = [cell for cell in cells if cell["regime"] == cells[0]["regime"]]
    failed = [cell for cell in cells if cell["status"] not in ("ok", "unsupported")]
    failed += [cell for cell in first if cell["status"] == "unsupported"]
    for verdict, statuses in _FAILED.items():
        if because := [cell for cell in failed if cell["status"] in statuses]:
            return verdict, because
    if first[0]["regime"] is None:
        return "compiles", first
    slower = [cell for cell in first if cell["speedup_high"] < 1]
    if slower:
        return "slower", slower
    tied = [cell for cell in first if cell["speedup_low"] <= 1]
    return ("tie", tied) if tied else ("faster", first)
