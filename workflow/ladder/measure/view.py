"""For each cell of a plan, the record that stands for it; and of a tuning sweep, which variants are the fastest.

A number that was chosen as the largest of many is too high by chance. The fastest are therefore measured again, in
a later process, and the record that they were chosen by does not count.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ladder.measure.conditions import tree_conditions
from ladder.measure.store import Records, now
from ladder.model.intervals import median
from ladder.model.plan import Plan, Task
from ladder.model.record import Conditions, Record, Session
from ladder.problems.registry import PROBLEMS

WRONG = ("incorrect", "out_of_bounds", "stateful")
"""Statuses that speak against a kernel: no later result hides them."""
FASTEST = 3
"""How many of the rivals are measured again."""

Rivals = list[tuple[int, Task]]  # tasks by their index in the plan


@dataclass(frozen=True)
class Winner:
    """One of the fastest: its task's index, the record it was chosen by, and the cell's records of later sessions."""

    index: int
    record: Record
    later: list[Record]

    @property
    def fresh(self) -> bool:
        """Whether a later session gave a result."""
        return any(one.status == "ok" for one in self.later)


def standing(alike: Sequence[Record]) -> Record:
    """Of records under equal conditions the latest that is wrong, else the latest result, else the latest."""
    for statuses in (WRONG, ("ok",)):
        if found := [one for one in alike if one.status in statuses]:
            return found[-1]
    return alike[-1]


def _median_us(record: Record) -> float:
    known = record.result
    return median(known["variant_us"]) if "variant_us" in known else float(known["summary"]["median_us"])


@dataclass(frozen=True)
class View:
    """A plan and records, of which one stands for a cell if it was made under the conditions of this checkout.

    If `earlier` is set and no record matches these conditions, the latest one made under others is used, one of the
    same sweep before all others.
    """

    plan: Plan
    records: Records
    earlier: bool = False

    def launched(self) -> Iterator[tuple[int, Task]]:
        """Tasks with something to measure, by their index in the plan."""
        for index, task in enumerate(self.plan.tasks):
            if task.launch is not None and self.plan.broken(task) is None:
                yield index, task

    def find(self, task: Task, regime: str = "", on: Mapping[str, Any] | None = None) -> Record | None:
        """A launched task's record in a regime (the plan's first), from a host with the conditions `on` or any."""
        cell = task.cell.in_regime(regime or self.plan.regimes[0])
        record = self.records.latest(cell, tree_conditions(self.plan, task, cell.regime), on)
        if record is None and self.earlier:
            # By time, those of this sweep last.
            known = sorted(self.records.of(cell), key=lambda one: one.sweep == self.plan.sweep)
            record = known[-1] if known else None
        return standing(self.alike(record)) if record is not None else None

    def is_current(self, task: Task, record: Record) -> bool:
        """Whether a task's record was made under the conditions of this checkout."""
        return bool(record.conditions.tree == tree_conditions(self.plan, task, record.cell.regime))

    def new_record(self, task: Task, regime: str, on: Mapping[str, Any], session: str, **rest: Any) -> Record:
        """A record, made now, of a launched task in a regime."""
        conditions = Conditions(tree_conditions(self.plan, task, regime), on)
        about = (task.cell.in_regime(regime), conditions, task.variant, self.plan.sweep, session, now())
        return Record(*about, **rest)

    def alike(self, record: Record) -> list[Record]:
        """Those records of the same cell that stand for one number with this one, the latest last."""
        return self.records.alike(record)

    def sessions_of(self, record: Record) -> tuple[int, int]:
        """In how many sessions a cell has a record's status, and in how many it was measured, conditions equal."""
        alike = self.alike(record)
        return len({one.session for one in alike if one.status == record.status}), len(
            {one.session for one in alike}
        )

    def session(self, record: Record) -> Session:
        """The session a record is from, as far as it is known."""
        return self.records.sessions.get(record.session, Session(record.session, ""))

    def rivals(self) -> list[Rivals]:
        """Launched tasks of a tuning sweep that compete: of one dtype, layout and size, which compute the same."""
        found: dict[tuple[Any, ...], Rivals] = {}
        same = PROBLEMS[self.plan.problem].parameters
        for index, task in self.launched() if self.plan.job.get("tuning") else ():
            if not task.beside:
                key = (*task.cell.operands, *(task.cell.params[name] for name in same))
                found.setdefault(key, []).append((index, task))
        return list(found.values())

    def fastest(self, among: Rivals, on: Mapping[str, str] | None = None) -> list[Winner]:
        """The fastest of some rivals by their first results in the plan's first regime, on hosts with conditions `on`.

        By the speed-up where all have the same reference, else by time.
        """
        found = []
        for index, task in among:
            record = self.find(task, on=on)
            if record is not None and record.status == "ok":
                known = self.alike(record)
                place = next(place for place, one in enumerate(known) if one.status == "ok")
                first = known[place]
                later = [one for one in known[place:] if one.session != first.session]
                found.append(Winner(index, first, later))
        if len({one.record.result.get("reference") for one in found}) == 1:
            found.sort(key=lambda one: -one.record.result["speedup"])
        else:
            found.sort(key=lambda one: _median_us(one.record))
        return found[:FASTEST]
