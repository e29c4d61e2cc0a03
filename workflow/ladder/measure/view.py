"""For each cell of a plan, the record that stands for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ladder.measure.conditions import tree_conditions
from ladder.measure.store import Records, now
from ladder.model.plan import Plan, Task
from ladder.model.record import Conditions, Record, Session

_PASSING = ("timeout", "launch_error", "unsupported")
"""What a later session may run into without saying anything against the result of an earlier one."""


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
        if record is not None and record.status in _PASSING:
            host = record.conditions.host
            good = [one for one in self.alike(record) if one.status == "ok" and one.conditions.host == host]
            record = good[-1] if good else record
        if record is not None or not self.earlier:
            return record
        # By time, those of this sweep last.
        known = sorted(self.records.of(cell), key=lambda one: one.sweep == self.plan.sweep)
        return known[-1] if known else None

    def is_current(self, task: Task, record: Record) -> bool:
        """Whether a task's record was made under the conditions of this checkout."""
        return bool(record.conditions.tree == tree_conditions(self.plan, task, record.cell.regime))

    def new_record(self, task: Task, regime: str, on: Mapping[str, Any], session: str, **rest: Any) -> Record:
        """A record, made now, of a launched task in a regime."""
        conditions = Conditions(tree_conditions(self.plan, task, regime), on)
        about = (task.cell.in_regime(regime), conditions, task.variant, self.plan.sweep, session, now())
        return Record(*about, **rest)

    def alike(self, record: Record) -> list[Record]:
        """Records of the same cell under the same conditions of the checkout; this one alone where they are unknown."""
        tree, known = record.conditions.tree, self.records.of(record.cell)
        return [one for one in known if one is record or (tree and one.conditions.tree == tree)]

    def session(self, record: Record) -> Session:
        """The session a record is from, as far as it is known."""
        return self.records.sessions.get(record.session, Session(record.session, ""))
