"""For each cell of a plan, the record that stands for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ladder.measure.conditions import tree_conditions
from ladder.measure.store import Records, now
from ladder.model.plan import Plan, Task
from ladder.model.record import Conditions, Record, Session

WRONG = ("incorrect", "out_of_bounds", "stateful")
"""What says something against a kernel, whenever it was seen: no later result hides it."""


@dataclass(frozen=True)
class View:
    """A plan and records, of which one stands for a cell if it was made under the conditions of this checkout.

    With `earlier` the latest one made under others stands in, one of the same sweep first.
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
        return self._standing(self.alike(record)) if record is not None else None

    @staticmethod
    def _standing(alike: list[Record]) -> Record:
        """Of records under equal conditions the latest that is wrong, else the latest result, else the latest."""
        for statuses in (WRONG, ("ok",)):
            if found := [one for one in alike if one.status in statuses]:
                return found[-1]
        return alike[-1]

    def is_current(self, task: Task, record: Record) -> bool:
        """Whether a task's record was made under the conditions of this checkout."""
        return bool(record.conditions.tree == tree_conditions(self.plan, task, record.cell.regime))

    def new_record(self, task: Task, regime: str, on: Mapping[str, Any], session: str, **rest: Any) -> Record:
        """A record, made now, of a launched task in a regime."""
        conditions = Conditions(tree_conditions(self.plan, task, regime), on)
        about = (task.cell.in_regime(regime), conditions, task.variant, self.plan.sweep, session, now())
        return Record(*about, **rest)

    def alike(self, record: Record) -> list[Record]:
        """Records of the same cell under equal conditions, the latest last; this one alone where they are unknown."""
        conditions = record.conditions
        if not (conditions.tree and conditions.host):
            return [record]
        return [one for one in self.records.of(record.cell) if one.conditions == conditions]

    def sessions_of(self, record: Record) -> tuple[int, int]:
        """In how many sessions a cell has a record's status, and in how many it was measured, conditions equal."""
        alike = self.alike(record)
        return len({one.session for one in alike if one.status == record.status}), len(
            {one.session for one in alike}
        )

    def session(self, record: Record) -> Session:
        """The session a record is from, as far as it is known."""
        return self.records.sessions.get(record.session, Session(record.session, ""))
