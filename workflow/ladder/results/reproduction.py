"""A published number and the same cell measured again: whether the new one lies where it was predicted."""

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from ladder.measure.plan_records import PlanRecords
from ladder.model.errors import LadderError, refuse
from ladder.model.schemas import TableRow
from ladder.model.sweep import Sweep
from ladder.results.collect import summarised
from ladder.results.judgement import Outcome, outcome
from ladder.results.statistics import estimate, identifier, predicted, records
from ladder.results.templates import TEMPLATES


def published_row(timings: pd.DataFrame, cell: str) -> TableRow:
    """The row that an identifier names. Raises LadderError for any other."""
    sweep = cell.partition("/")[0]
    rows = {identifier(row): row for row in records(timings[timings["sweep"] == sweep])}
    if cell not in rows:
        near = difflib.get_close_matches(cell, rows, n=1, cutoff=0) or [
            "SWEEP/VARIANT@SIZE:REGIME"
        ]
        raise refuse(
            "command line",
            "CELL",
            cell,
            f"a cell of the published tables, such as {near[0]}",
        )
    return rows[cell]


def alone(sweep: Sweep, row: TableRow) -> Sweep:
    """The sweep with this cell and nothing else. Raises LadderError where it has no such cell any more."""
    for entry, size in sweep.cells:
        if entry.variant.id == row["variant"] and all(
            row[name] == value for name, value in size.items()
        ):
            break
    else:
        raise LadderError(
            f"the sweep {sweep.name} has no cell {identifier(row)} any more"
        )
    entries = [replace(entry, sizes=(size,))]
    if row["baseline"] is None:
        entries = [replace(entries[0], baseline=None)]
    elif entry.baseline is not None:
        entries.append(
            replace(entry.baseline, sizes=(size,))
        )  # it is compiled where it is launched
    cell = (
        (entry.variant.dtype,),
        (size,),
        tuple(entries),
        sweep.reference,
        (row["regime"],),
    )
    return Sweep(sweep.name, sweep.problem, *cell, precision=sweep.precision)


def again(view: PlanRecords, row: TableRow) -> Outcome:
    """The outcome of the one cell that was measured, or of its pair with a baseline."""
    paired = row["baseline"] is not None
    return outcome(
        view, next(task for task in view.plan.tasks if bool(task.baseline) == paired)
    )


def inside(row: TableRow, now: Outcome) -> bool | None:
    """Whether the new value lies where it was predicted; None where nothing was.

    Where it is over another library than the published one, and that one's times over both are known, the prediction
    is that over the same library. Where one of the two has no number: whether their statuses are the same.
    """
    status, _, result = now
    if status != "ok" or row["status"] != "ok":
        return bool(status == row["status"])
    expected, over = predicted(row), row.get(f"over_{result['reference']}")
    same = result["reference"] == row["reference"] or over is None
    value = result["speedup"] / (1.0 if same else over / row["speedup"])
    return bool(expected.low <= value <= expected.high) if expected.known else None


def published_text(row: TableRow, about: Mapping[str, Any]) -> str:
    """What was published of a cell, for a terminal."""
    return _text(
        "published", row, about=about, gpu=(about.get("gpu") or {}).get("name")
    )


def measured_text(row: TableRow, now: Outcome, gpu: str) -> str:
    """What was measured now, and the verdict."""
    status, reason, result = now
    found = summarised(result)
    known = {"status": status, "reason": reason, "reference": result.get("reference")}
    known |= {
        "speedup": estimate(found, "speedup"),
        "median_us": found.get("median_us"),
    }
    return _text("measured", row, now=known, gpu=gpu, inside=inside(row, now))


def _text(part: str, row: TableRow, **known: Any) -> str:
    known |= {"row": row, "name": identifier(row), "part": part}
    known |= {"speed": estimate(row, "speedup"), "expected": predicted(row)}
    return TEMPLATES.get_template("reproduce.j2").render(known).strip()
