"""Tuning sweeps: which variants are the fastest of many, and what was measured of them after they were chosen.

A number that was chosen as the largest of many is too high by chance. The fastest are therefore measured again, in
a later process, and the record that they were chosen by does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ladder.measure.view import View
from ladder.model.intervals import median
from ladder.model.plan import Task
from ladder.model.record import Record
from ladder.problems.registry import PROBLEMS

FASTEST = 3
"""How many of the rivals are measured again."""

Rivals = list[tuple[int, Task]]  # tasks by their index in the plan


@dataclass(frozen=True)
class Chosen:
    """One of the fastest: its task's index, the record it was chosen by, and the cell's records of later sessions."""

    index: int
    record: Record
    later: list[Record]

    @property
    def fresh(self) -> bool:
        """Whether a later session gave a result."""
        return any(one.status == "ok" for one in self.later)


def rivals(view: View) -> list[Rivals]:
    """Launched tasks of a tuning sweep that compete: of one dtype, layout and size, which compute the same."""
    found: dict[tuple[Any, ...], Rivals] = {}
    same = PROBLEMS[view.plan.problem].parameters
    for index, task in view.launched() if view.plan.job.get("tuning") else ():
        if not task.baseline:
            key = (*task.cell.operands, *(task.cell.params[name] for name in same))
            found.setdefault(key, []).append((index, task))
    return list(found.values())


def _median_us(record: Record) -> float:
    known = record.result
    return median(known["variant_us"]) if "variant_us" in known else float(known["summary"]["median_us"])


def fastest(view: View, among: Rivals, on: Mapping[str, str] | None = None) -> list[Chosen]:
    """The fastest of some rivals by their first results, in the plan's first regime, on hosts with the conditions `on`.

    By the speed-up where all have the same reference, else by time.
    """
    found = []
    for index, task in among:
        record = view.find(task, on=on)
        if record is not None and record.status == "ok":
            known = view.alike(record)
            place = next(place for place, one in enumerate(known) if one.status == "ok")
            first = known[place]
            later = [one for one in known[place:] if one.session != first.session]
            found.append(Chosen(index, first, later))
    if len({one.record.result.get("reference") for one in found}) == 1:
        found.sort(key=lambda one: -one.record.result["speedup"])
    else:
        found.sort(key=lambda one: _median_us(one.record))
    return found[:FASTEST]
