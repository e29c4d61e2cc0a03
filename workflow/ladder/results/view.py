"""What tables are made from: for each cell of a plan, the record that stands for it."""

from __future__ import annotations

from dataclasses import dataclass

from ladder.measure.conditions import Compiled, tree_conditions
from ladder.measure.store import Records
from ladder.model.plan import Plan, Task
from ladder.model.record import Record, Session


@dataclass(frozen=True)
class View:
    """A plan, what was compiled for it, and records.

    A record stands for a cell if it was made under the conditions of this checkout; with `earlier`, the latest made
    under others stands in where there is none, one that the same sweep asked for first.
    """

    plan: Plan
    made: Compiled
    records: Records
    earlier: bool = False

    def find(self, task: Task, regime: str) -> Record | None:
        """The record of a task in a regime, or None. The task must have a launch."""
        cell = task.cell.in_regime(regime)
        record = self.records.latest(cell, tree_conditions(self.plan, task, regime, self.made))
        if record is not None or not self.earlier:
            return record
        known = self.records.of(cell)
        own = [one for one in known if one.sweep == self.plan.sweep]
        return (own or known)[-1] if known else None

    def alike(self, record: Record) -> list[Record]:
        """Records of the same cell under the same conditions of the checkout, the latest last."""
        return [one for one in self.records.of(record.cell) if one.conditions.tree == record.conditions.tree]

    def session(self, record: Record) -> Session:
        """The session a record is from, as far as it is known."""
        return self.records.sessions.get(record.session, Session(record.session, ""))
