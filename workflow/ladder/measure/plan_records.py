"""For each cell of a plan, the record that stands for it; and of a tuning sweep, which variants are the fastest.

A number that was chosen as the largest of many is too high by chance. The fastest are therefore measured again, in
a later process, and the record that they were chosen by does not count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ladder.measure.choice import partners
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
"""What a cell is over for which no reference could be had: it has no result."""
FASTEST = 3
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
        return any(one.status == "ok" for one in self.later)


def _holds(record: Record, choice: Record) -> bool:
    """Whether the conditions of a record hold those of a choice."""
    tree = record.conditions.tree
    return all(name in tree and tree[name] == value for name, value in choice.conditions.tree.items())


def _reference(record: Record) -> Partner:
    """What a record is over."""
    return Partner(record.result.get("reference", ""), record.result.get("algorithm") or "")


def _partners(choice: Record) -> list[Partner]:
    """What may be the reference by a choice: none where it failed."""
    return partners(choice.result) if choice.status == "ok" else []


def standing(alike: Sequence[Record]) -> Record:
    """Of records under equal conditions the latest that is wrong, else the latest result, else the latest."""
    for statuses in (WRONG, ("ok",)):
        if found := [one for one in alike if one.status in statuses]:
            return found[-1]
    return alike[-1]


def _median_us(record: Record) -> float:
    return float(median(record.result["variant_us"]))


@dataclass(frozen=True)
class PlanRecords:
    """A plan and records, of which one stands for a cell if it was made under the conditions of this checkout.

    If `fall_back` is set and no record matches these conditions, the latest one made under others is used, one of the
    same sweep before all others.
    """

    plan: Plan
    records: Records
    fall_back: bool = False

    @property
    def parameters(self) -> Iterable[str]:
        """Of the problem: those that an answer depends on."""
        return PROBLEMS[self.plan.problem].parameters

    def choice(self, record: Record) -> Record | None:
        """The choice of a record's reference under its conditions, if there was a choice and its record is there.

        Each session may choose anew: it is the latest that chose this reference, or ties with it, else the latest.
        """
        choice = record.cell.choice(self.parameters)
        known = [
            one
            for one in (self.records.of(choice) if choice is not None else [])
            if one.conditions.host == record.conditions.host and _holds(record, one)
        ]
        own = _reference(record)
        if over := [one for one in known if own in _partners(one)]:
            return over[-1]
        return standing(self.records.same_conditions(known[-1])) if known else None

    def chosen(self, choice: Cell, on: Mapping[str, Any] | None) -> Record | None:
        """The record of a choice of the plan under today's conditions, from a host with the conditions `on` or any."""
        record = self.records.latest(choice, choice_conditions(self.plan, choice), on)
        return standing(self.records.same_conditions(record)) if record is not None else None

    def counts(self, record: Record) -> bool:
        """Whether a record is over a reference that was chosen, or one that ties with it; true without a choice."""
        choice = self.choice(record) if "reference" in record.result else None
        if choice is None:
            return True
        return _reference(record) in (_partners(choice) or [ABSENT])

    def broken(self, task: Task) -> str | None:
        """Why a task's variant did not compile, or None; a compiler that is missing here hides no earlier record."""
        why = self.plan.broken(task)
        if why is not None and self.fall_back and self.plan.variants[task.variant]["status"] == "unsupported":
            return None if self.records.of(task.cell) else why
        return why

    def launched(self) -> Iterator[tuple[int, Task]]:
        """Tasks with something to measure, by their index in the plan."""
        for index, task in enumerate(self.plan.tasks):
            if task.launch is not None and self.broken(task) is None:
                yield index, task

    def current_record(
        self, task: Task, regime: str = "", on: Mapping[str, Any] | None = None
    ) -> Record | None:
        """A launched task's record in a regime (the plan's first), from a host with the conditions `on` or any."""
        cell = task.cell.in_regime(regime or self.plan.regimes[0])
        tree = tree_conditions(self.plan, task, cell.regime)
        record = self.records.latest(cell, tree, on, self.counts)
        if record is None and self.fall_back:
            # By time, those of this sweep last.
            known = sorted(self.records.of(cell), key=lambda one: one.sweep == self.plan.sweep)
            record = known[-1] if known else None
        return standing(self.same_conditions(record)) if record is not None else None

    def is_current(self, task: Task, record: Record) -> bool:
        """Whether a task's record was made under the conditions of this checkout."""
        return bool(record.conditions.tree == tree_conditions(self.plan, task, record.cell.regime))

    def new_record(self, task: Task, regime: str, on: Mapping[str, Any], session: str, **rest: Any) -> Record:
        """A record, made now, of a launched task in a regime."""
        conditions = Conditions(tree_conditions(self.plan, task, regime), on)
        about = (task.cell.in_regime(regime), conditions, task.variant, self.plan.sweep, session, now())
        return Record(*about, **rest)

    def new_choice(self, choice: Cell, on: Mapping[str, Any], session: str, **rest: Any) -> Record:
        """A record, made now, of a choice of the plan."""
        conditions = Conditions(choice_conditions(self.plan, choice), on)
        name = " or ".join(choice.reference.libraries)
        return Record(choice, conditions, name, self.plan.sweep, session, now(), **rest)

    def same_conditions(self, record: Record) -> list[Record]:
        """Records of the same cell that stand for one number with this one, the latest last: under equal conditions,
        over one reference."""
        return [one for one in self.records.same_conditions(record) if one is record or self.counts(one)]

    def sessions_of(self, record: Record) -> tuple[int, int]:
        """In how many sessions a cell has a record's status, and in how many it was measured, conditions equal."""
        alike = self.same_conditions(record)
        return len({one.session for one in alike if one.status == record.status}), len(
            {one.session for one in alike}
        )

    def session(self, record: Record) -> Session:
        """The session a record is from, as far as it is known."""
        return self.records.sessions.get(record.session, Session(record.session, ""))

    def competitors(self) -> list[Competitors]:
        """Launched tasks of a tuning sweep that compete: of one dtype, layout and size, which compute the same."""
        found: dict[tuple[Any, ...], Competitors] = {}
        for index, task in self.launched() if self.plan.job.get("tuning") else ():
            if not task.beside:
                key = (*task.cell.operands, *(task.cell.params[name] for name in self.parameters))
                found.setdefault(key, []).append((index, task))
        return list(found.values())

    def fastest(self, among: Competitors, on: Mapping[str, str] | None = None) -> list[Winner]:
        """The fastest of competitors by their first results in the first regime, on hosts with conditions `on`.

        By the speed-up where all have the same reference, else by time.
        """
        found = []
        for index, task in among:
            record = self.current_record(task, on=on)
            if record is not None and record.status == "ok":
                known = self.same_conditions(record)
                place = next(place for place, one in enumerate(known) if one.status == "ok")
                first = known[place]
                later = [one for one in known[place:] if one.session != first.session]
                found.append(Winner(index, first, later))
        if len({one.record.result.get("reference") for one in found}) == 1:
            found.sort(key=lambda one: -one.record.result["speedup"])
        else:
            found.sort(key=lambda one: _median_us(one.record))
        return found[:FASTEST]
