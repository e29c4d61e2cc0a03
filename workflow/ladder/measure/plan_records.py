"""For each cell of a plan, the record that stands for it; and of a tuning sweep, which variants are the fastest.

A number that was chosen as the largest of many is too high by chance. The fastest are therefore measured again, in
a later process, and the record that they were chosen by does not count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from ladder.measure.choice import partner, partners
from ladder.measure.conditions import choice_conditions, tree_conditions
from ladder.measure.store import Records, now
from ladder.model.cell import Cell, Partner
from ladder.model.intervals import median
from ladder.model.plan import Plan, Task
from ladder.model.record import Conditions, Record, Session
from ladder.problems.registry import PROBLEMS

WRONG = ("incorrect", "out_of_bounds", "stateful")
"""Statuses that speak against a kernel: no later result hides them."""
ABSENT = Partner("")
"""A cell without a reference has no result."""
_FASTEST = 3
"""How many of the competitors are measured again."""

Competitors = list[tuple[int, Task]]  # tasks by their index in the plan


@dataclass(frozen=True)
class Winner:
    """One of the fastest: its task's index, the record it was chosen by, and the cell's records of later sessions."""

    index: int
    record: Record
    later: list[Record]

    @property
    def fresh(self) -> bool:
        """Whether a later session gave a result."""
        return any(record.status == "ok" for record in self.later)


def _decided_under(record: Record, decision: Record) -> bool:
    """Whether a decision was made under the conditions of a record, which may have more."""
    if record.conditions.host != decision.conditions.host:
        return False
    return decision.conditions.tree.items() <= record.conditions.tree.items()


def _partners(decision: Record) -> list[Partner]:
    """What may be the reference by a decision: none where it failed."""
    return partners(decision.result) if decision.status == "ok" else []


def standing(records: Sequence[Record]) -> Record:
    """Of records under equal conditions the latest that is wrong, else the latest result, else the latest."""
    for statuses in (WRONG, ("ok",)):
        for record in reversed(records):
            if record.status in statuses:
                return record
    return records[-1]


@dataclass(frozen=True)
class PlanRecords:
    """A plan and records, of which one stands for a cell if it was made under the conditions of this checkout.

    on: conditions of the host that records must be from; those of any host count if it is None.
    If `fall_back` is set and no record matches these conditions, the latest one made under others is used, one of the
    same sweep before all others.
    """

    plan: Plan
    records: Records
    fall_back: bool = False
    on: Mapping[str, Any] | None = None

    @property
    def parameters(self) -> Iterable[str]:
        """Of the problem: those that an answer depends on."""
        return PROBLEMS[self.plan.problem].parameters

    def is_complete(self) -> bool:
        """Whether each task that is launched has a record in all of its regimes."""
        return all(
            self.current_record(task, regime)
            for _, task in self.launched()
            for regime in self.plan.regimes_of(task)
        )

    def decision_behind(self, record: Record) -> Record | None:
        """The record of the choice of a record's reference under its conditions, if there was a choice.

        Each session may choose anew: it is the latest that chose this reference, or ties with it, else the latest.
        """
        choice = record.cell.choice(self.parameters)
        latest = None
        for decision in reversed(self.records.of(choice) if choice else []):
            if not _decided_under(record, decision):
                continue
            if partner(record.result) in _partners(decision):
                return decision
            latest = latest or decision
        return latest and standing(self.records.same_conditions(latest))

    def decision(self, choice: Cell) -> Record | None:
        """The record of a choice of the plan under today's conditions."""
        tree = choice_conditions(self.plan, choice)
        record = self.records.latest(choice, tree, self.on)
        return record and standing(self.records.same_conditions(record))

    def counts(self, record: Record) -> bool:
        """Whether a record is over a reference that was chosen, or one that ties with it; true without a choice."""
        if "reference" not in record.result:
            return True
        decision = self.decision_behind(record)
        if decision is None:
            return True
        return partner(record.result) in (_partners(decision) or [ABSENT])

    def broken(self, task: Task) -> str | None:
        """Why a task's variant did not compile, or None; a compiler that is missing here hides no earlier record."""
        why = self.plan.broken(task)
        if why and self.fall_back and self.records.of(task.cell):
            status = self.plan.variants[task.variant]["status"]
            return None if status == "unsupported" else why
        return why

    def launched(self) -> Iterator[tuple[int, Task]]:
        """Tasks with something to measure, by their index in the plan."""
        for index, task in enumerate(self.plan.tasks):
            if task.launch is not None and self.broken(task) is None:
                yield index, task

    def current_record(self, task: Task, regime: str = "") -> Record | None:
        """A launched task's record in a regime (the plan's first)."""
        cell = task.cell.in_regime(regime or self.plan.regimes[0])
        tree = tree_conditions(self.plan, task, cell.regime)
        record = self.records.latest(cell, tree, self.on, self.counts)
        if record is None and self.fall_back:
            others = self.records.of(cell)
            of_sweep = [other for other in others if other.sweep == self.plan.sweep]
            record = next(reversed(of_sweep or others), None)
        return record and standing(self.same_conditions(record))

    def is_current(self, task: Task, record: Record) -> bool:
        """Whether a task's record was made under the conditions of this checkout."""
        tree = tree_conditions(self.plan, task, record.cell.regime)
        return bool(record.conditions.tree == tree)

    def new_record(self, task: Task, regime: str, session: str, **more: Any) -> Record:
        """A record, made now, of a launched task in a regime; `more` are its other fields."""
        tree = tree_conditions(self.plan, task, regime)
        conditions = Conditions(tree, self.on or {})
        cell = task.cell.in_regime(regime)
        sweep = self.plan.sweep
        return Record(cell, conditions, task.variant, sweep, session, now(), **more)

    def new_decision(self, choice: Cell, session: str, **more: Any) -> Record:
        """A record, made now, of a choice of the plan."""
        tree = choice_conditions(self.plan, choice)
        conditions = Conditions(tree, self.on or {})
        name = " or ".join(choice.reference.libraries)
        return Record(choice, conditions, name, self.plan.sweep, session, now(), **more)

    def same_conditions(self, record: Record) -> list[Record]:
        """Records that stand for one number with this one: of its cell, under equal conditions, over one reference.

        The latest is last.
        """
        others = self.records.same_conditions(record)
        return [other for other in others if other is record or self.counts(other)]

    def sessions_of(self, record: Record) -> tuple[int, int]:
        """In how many sessions a cell has a record's status, and in how many it was measured, conditions equal."""
        records = self.same_conditions(record)
        alike = {each.session for each in records if each.status == record.status}
        return len(alike), len({each.session for each in records})

    def session(self, record: Record) -> Session:
        """The session a record is from, as far as it is known."""
        return self.records.sessions.get(record.session, Session(record.session, ""))

    def competitors(self) -> list[Competitors]:
        """Launched tasks of a tuning sweep that compete: of one dtype, layout and size, which compute the same."""
        if not self.plan.job.get("tuning"):
            return []
        groups = dict[tuple[Any, ...], Competitors]()
        for index, task in self.launched():
            if task.beside:
                continue
            cell = task.cell
            computes = [cell.params[name] for name in self.parameters]
            groups.setdefault((*cell.operands, *computes), []).append((index, task))
        return list(groups.values())

    def fastest(self, among: Competitors) -> list[Winner]:
        """The fastest of competitors by their first results in the first regime.

        By the speed-up where all have the same reference, else by time.
        """
        winners = []
        for index, task in among:
            record = self.current_record(task)
            if record is None or record.status != "ok":
                continue
            records = self.same_conditions(record)
            first, *others = dropwhile(lambda each: each.status != "ok", records)
            later = [other for other in others if other.session != first.session]
            winners.append(Winner(index, first, later))
        if len({winner.record.result.get("reference") for winner in winners}) == 1:
            winners.sort(key=lambda winner: -winner.record.result["speedup"])
        else:
            winners.sort(key=lambda winner: median(winner.record.result["variant_us"]))
        return winners[:_FASTEST]
