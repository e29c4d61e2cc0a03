"""What a measuring job measures next: by its plan, the records there are, the host's conditions, and the GPU."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ladder.measure.assignment import Assignment
from ladder.measure.choice import partner
from ladder.measure.plan_records import ABSENT, PlanRecords
from ladder.measure.store import Records, now
from ladder.model.cell import SUSTAINED, Cell
from ladder.model.plan import Plan, Task
from ladder.model.record import Record

Due = list[tuple[int, list[str]]]
"""Tasks by their index in the plan, with the regimes to measure."""


@dataclass
class Schedule:
    """The cells of a plan that are still to be measured.

    began: when the run did.
    """

    view: PlanRecords
    began: str = field(default_factory=now)

    def __post_init__(self) -> None:
        self.look_at(self.view.records)

    def look_at(self, records: Records) -> None:
        """Go by these records from now on; a run that measures all again skips those from before it."""
        if self.plan.job["remeasure"]:
            records = records.since(self.began)
        self.view = replace(self.view, records=records)

    @property
    def plan(self) -> Plan:
        return self.view.plan

    def due(self, uuid: str | None = None) -> Due:
        """What lacks a record, or a session on the GPU `uuid` if one is given, and winners to measure again."""
        regimes_by_task = dict[int, list[str]]()
        for index, task in self.view.launched():
            regimes = self.plan.regimes_of(task)
            lacking = [each for each in regimes if self._lacks(task, each, uuid)]
            if lacking:
                regimes_by_task[index] = lacking
        for index in self._winners(regimes_by_task):
            first = self.plan.regimes[0]
            regimes_by_task[index] = [first, *regimes_by_task.get(index, [])]
        return sorted(regimes_by_task.items())

    def _lacks(self, task: Task, regime: str, uuid: str | None) -> bool:
        """Whether a task must be measured in a regime."""
        record = self.view.current_record(task, regime)
        if record is None or not self._is_settled(self.view.same_conditions(record)):
            return True
        without_reference = record.result.get("reference") == ABSENT.reference
        if without_reference and self._undecided(task, regime) is not None:
            return True
        # Sustained beside the sweep's own regimes takes long: once is enough.
        if uuid is None or not task.repeated or regime not in self.plan.regimes:
            return False
        sessions = set[str]()
        for other in self.view.same_conditions(record):
            gpu = self.view.session(other).gpu
            if other.status == "ok" and gpu.get("uuid") == uuid:
                sessions.add(other.session)
        wanted = self.plan.job["sessions"]
        return record.status == "ok" and wanted > 1 and len(sessions) < wanted

    def _is_final(self, record: Record) -> bool:
        """Retry timeouts under a longer deadline, and failures of the host or of a launch in the next run."""
        if record.status == "timeout":
            return bool((record.limit_s or 0.0) >= self.plan.job["deadline_s"])
        if record.result.get("transient") or record.status == "launch_error":
            return record.time >= self.began
        return True

    def _is_settled(self, records: Sequence[Record]) -> bool:
        """Whether a cell needs no other try: it has a final record, or its launches failed in two sessions.

        `records` are of one cell under equal conditions.
        """
        if any(map(self._is_final, records)):
            return True
        errors = [record for record in records if record.status == "launch_error"]
        by_kernel = any(not record.result.get("transient") for record in errors)
        return by_kernel and len({record.session for record in errors}) > 1

    def _undecided(self, task: Task, regime: str) -> Cell | None:
        """The choice of a task's reference, if there is one and it must be measured first."""
        choice = task.cell.in_regime(regime).choice(self.view.parameters)
        if choice is None:
            return None
        decision = self.view.decision(choice)
        if decision is None:
            return choice
        decisions = self.view.records.same_conditions(decision)
        return None if self._is_settled(decisions) else choice

    def _winners(self, unmeasured: Mapping[int, list[str]]) -> list[int]:
        """The fastest of competitors that are all measured, until a later process has measured them."""
        first = self.plan.regimes[0]
        winners = list[int]()
        for competitors in self.view.competitors():
            if any(first in unmeasured.get(index, ()) for index, _ in competitors):
                continue
            fastest = self.view.fastest(competitors)
            winners += [
                winner.index for winner in fastest if not self._is_settled(winner.later)
            ]
        return winners

    def in_order(self, due: Due) -> Due:
        """As the plan has them; shuffled for several sessions, so that each meets another order.

        Cells of the same inputs stay together: their groups are shuffled, and each group.
        """
        if self.plan.job["sessions"] == 1:
            return due
        groups = dict[tuple[object, ...], Due]()
        for index, regimes in due:
            operands = self.plan.tasks[index].cell.operands
            groups.setdefault(operands, []).append((index, regimes))
        shuffled = Due()
        for group in random.sample(list(groups.values()), len(groups)):
            shuffled += random.sample(group, len(group))
        return shuffled

    def choices(self, due: Due) -> list[int]:
        """Choices that what is due depends on and that must be measured first, by their index in the plan."""
        undecided = set[int]()
        for index, regimes in due:
            for regime in regimes:
                choice = self._undecided(self.plan.tasks[index], regime)
                if choice is not None:
                    undecided.add(self.plan.choices.index(choice))
        return sorted(undecided)

    def assignments(self, due: Due) -> Iterator[Assignment]:
        """What to ask a worker for, in order; the next one goes by the records of those before it.

        References come first: no kernel that is held against one has run in the process that measures it.
        """
        for index in self.choices(due):
            yield Assignment(index, [self.plan.choices[index].regime], choice=True)
        for index, regimes in self.in_order(due):
            # Sustained apart: it takes long, and its failure is not the other regimes'.
            short = [regime for regime in regimes if regime != SUSTAINED]
            if short:
                yield self._assignment(index, short)
            if SUSTAINED in regimes:
                yield self._assignment(index, [SUSTAINED])

    def _assignment(self, index: int, regimes: Sequence[str]) -> Assignment:
        task = self.plan.tasks[index]
        against = {regime: self._against(task, regime) for regime in regimes}
        return Assignment(index, regimes, against=against)

    def _against(self, task: Task, regime: str) -> dict[str, str]:
        """What was chosen for a task, or why there is none; nothing where there is no choice."""
        choice = task.cell.in_regime(regime).choice(self.view.parameters)
        if choice is None:
            return {}
        decision = self.view.decision(choice)
        if decision is None:
            return {"absent": "it was not measured"}
        if decision.status != "ok":
            return {"absent": decision.reason or decision.status}
        return asdict(partner(decision.result))
