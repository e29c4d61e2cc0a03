"""A published number and the same cell measured again: whether the new one lies where it was predicted."""

import difflib
from dataclasses import replace
from typing import Any

from pandas import DataFrame

from ladder.measure.plan_records import PlanRecords
from ladder.model.errors import LadderError, refuse
from ladder.model.schemas import Fields, TableRow
from ladder.model.sweep import Sweep
from ladder.results.collect import summarised
from ladder.results.judgement import Outcome, outcome
from ladder.results.statistics import estimate, identifier, records, size_of
from ladder.results.templates import TEMPLATES
from ladder.results.verdicts import gain


def published_row(timings: DataFrame, cell: str) -> TableRow:
    """The row that an identifier names. Raises LadderError for any other."""
    of_sweep = timings[timings["sweep"] == cell.partition("/")[0]]
    rows = {identifier(row): row for row in records(of_sweep)}
    if cell not in rows:
        near = difflib.get_close_matches(cell, rows, n=1, cutoff=0)
        example = near[0] if near else "SWEEP/VARIANT@SIZE:REGIME"
        accepted = f"a cell of the published tables, such as {example}"
        raise refuse("command line", "CELL", cell, accepted)
    return rows[cell]


def alone(sweep: Sweep, row: TableRow) -> Sweep:
    """The sweep with this cell and nothing else. Raises LadderError where it has no such cell any more."""
    size = size_of(row)
    for entry, cell_size in sweep.cells:
        if entry.variant.id == row["variant"] and cell_size == size:
            break
    else:
        raise LadderError(
            f"the sweep {sweep.name} has no cell {identifier(row)} any more"
        )
    entries = [replace(entry, sizes=(size,))]
    if row["baseline"] is None:
        entries = [replace(entry, sizes=(size,), baseline=None)]
    elif entry.baseline is not None:
        # A baseline is compiled where it is launched.
        entries.append(replace(entry.baseline, sizes=(size,)))
    return Sweep(
        sweep.name,
        sweep.problem,
        dtypes=(entry.variant.dtype,),
        sizes=(size,),
        entries=tuple(entries),
        reference=sweep.reference,
        regimes=(row["regime"],),
        precision=sweep.precision,
    )


def again(view: PlanRecords, row: TableRow) -> Outcome:
    """The outcome of the one cell that was measured, or of its pair with a baseline."""
    (task,) = [
        task
        for task in view.plan.tasks
        if bool(task.baseline) == (row["baseline"] is not None)
    ]
    return outcome(view, task, view.plan.regimes[0])


def inside(row: TableRow, now: Outcome) -> bool | None:
    """Whether the new value lies where it was predicted; None where nothing was.

    Where it is over another library than the published one, and that one's times over both are known, the prediction
    is that over the same library. Where one of the two has no number: whether their statuses are the same.
    """
    status, _, result = now
    if status != "ok" or row["status"] != "ok":
        return bool(status == row["status"])
    expected = gain(row).predicted
    if not expected.known:
        return None
    value = result["speedup"]
    over = row.get(f"over_{result['reference']}")
    if over is not None and result["reference"] != row["reference"]:
        value *= row["speedup"] / over
    return bool(expected.low <= value <= expected.high)


def published_text(row: TableRow, environment: Fields) -> str:
    """What was published of a cell, for a terminal."""
    gpu = environment["gpu"] or {}
    return _text("published", row, about=environment, gpu=gpu.get("name"))


def measured_text(row: TableRow, now: Outcome, gpu: str) -> str:
    """What was measured now, and the verdict."""
    status, reason, result = now
    summary = summarised(result)
    speedup = estimate(summary, "speedup")
    measured = {**summary, "status": status, "reason": reason, "speedup": speedup}
    return _text("measured", row, now=measured, gpu=gpu, inside=inside(row, now))


def _text(part: str, row: TableRow, **words: Any) -> str:
    template = TEMPLATES.get_template("reproduce.j2")
    return template.render(
        part=part,
        row=row,
        name=identifier(row),
        published=gain(row),
        **words,
    ).strip()
