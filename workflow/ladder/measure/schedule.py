"""What a measuring job measures next: by its plan, the records there are, the host's conditions, and the GPU."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ladder.measure.choice import partner
from ladder.measure.plan_records import ABSENT, PlanRecords
from ladder.measure.request import Request
from ladder.measure.store import Records, now
from ladder.model.cell import SUSTAINED, Cell
from ladder.model.plan import Plan, Task
from ladder.model.record import Record

Due = list[tuple[int, list[str]]]
"""Tasks by their index in the plan, with the regimes to measure."""


def is_final(record: Record, deadline_s: float, run_started: str) -> bool:
    """Retry timeouts under a longer deadline, and failures of the host or of a launch in the next run."""
    if record.status == "timeout":
        return (record.limit_s or 0.0) >= deadline_s
    if record.result.get("transient") or record.status == "launch_error":
        return record.time >= run_started
    return True


def is_settled(records: Sequence[Record], deadline_s: float, run_started: str) -> bool:
    """Whether a cell needs no other try: it has a final record, or its launches failed in two sessions.

    `records` are of one cell under equal conditions.
    """
    if any(is_final(record, deadline_s, run_started) for record in records):
        return True
    launch_errors = [record for record in records if record.status == "launch_error"]
    by_kernel = any(not record.result.get("transient") for record in launch_errors)
    return by_kernel and len({record.session for record in launch_errors}) > 1


@dataclass
class Schedule:
    """The cells of a plan that are still to be measured.

    on: conditions of the host; records of any host count if it is None. began: when the run did.
    """

    view: PlanRecords
    on: Mapping[str, str] | None
    began: str = field(default_factory=now)

    def __post_init__(self) -> None:
        self.look_at(self.view.records)

    def look_at(self, records: Records) -> None:
        """Go by these records from now on; a run that measures all again skips those from before it."""
        if self.plan.job["remeasure"]:
            records = records.since(self.began)
        self.view = replace(self.view, records=records)

    def take(self, records: Iterable[Record]) -> None:
        """Go by what was just measured, too."""
        self.view.records.add(records)

    @property
    def plan(self) -> Plan:
        return self.view.plan

    def due(self, uuid: str | None = None) -> Due:
        """What lacks a record, or a session on the GPU `uuid` if one is given, and winners to measure again."""
        regimes_by_task = dict[int, list[str]]()
        for index, task in self.view.launched():
            for regime in self.plan.regimes_of(task):
                if self._lacks(task, regime, uuid):
                    regimes_by_task.setdefault(index, []).append(regime)
        for index in self._winners(regimes_by_task):
            first = self.plan.regimes[0]
            regimes_by_task[index] = [first, *regimes_by_task.get(index, [])]
        return sorted(regimes_by_task.items())

    def _lacks(self, task: Task, regime: str, uuid: str | None) -> bool:
        """Whether a task must be measured in a regime."""
        record = self.view.current_record(task, regime, self.on)
        if record is None or not self._is_settled(self.view.same_conditions(record)):
            return True
        without_reference = record.result.get("reference") == ABSENT.reference
        if without_reference and self._undecided(task, regime) is not None:
            return True
        # Sustained beside the sweep's own regimes takes long: once is enough.
        if uuid is None or not task.repeated or regime not in self.plan.regimes:
            return False
        return record.status == "ok" and self._lacks_sessions(record, uuid)

    def _lacks_sessions(self, record: Record, uuid: str) -> bool:
        """Whether fewer sessions on a GPU than the plan asks for gave a result."""
        wanted = self.plan.job["sessions"]
        if wanted == 1:
            return False
        sessions = set[str]()
        for other in self.view.same_conditions(record):
            gpu = self.view.session(other).gpu
            if other.status == "ok" and gpu.get("uuid") == uuid:
                sessions.add(other.session)
        return len(sessions) < int(wanted)

    def _is_settled(self, records: Sequence[Record]) -> bool:
        return is_settled(records, self.plan.job["deadline_s"], self.began)

    def _undecided(self, task: Task, regime: str) -> Cell | None:
        """The choice of a task's reference, if there is one and it must be measured first."""
        choice = task.cell.in_regime(regime).choice(self.view.parameters)
        if choice is None:
            return None
        record = self.view.chosen(choice, self.on)
        if record is None:
            return choice
        settled = self._is_settled(self.view.records.same_conditions(record))
        return None if settled else choice

    def _winners(self, unmeasured: Mapping[int, list[str]]) -> list[int]:
        """The fastest of competitors that are all measured, until a later process has measured them."""
        first = self.plan.regimes[0]
        winners = list[int]()
        for competitors in self.view.competitors():
            if any(first in unmeasured.get(index, ()) for index, _ in competitors):
                continue
            for winner in self.view.fastest(competitors, self.on):
                if not self._is_settled(winner.later):
                    winners.append(winner.index)
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

    def requests(self, due: Due) -> Iterator[Request]:
        """What to ask a worker for, in order; the next one goes by the records of those before it.

        References come first: no kernel that is held against one has run in the process that measures it.
        """
        for index in self.choices(due):
            yield Request(index, [self.plan.choices[index].regime], choice=True)
        for index, regimes in self.in_order(due):
            # Sustained apart: it takes long, and its failure is not the other regimes'.
            short = [regime for regime in regimes if regime != SUSTAINED]
            if short:
                yield self._request(index, short)
            if SUSTAINED in regimes:
                yield self._request(index, [SUSTAINED])

    def _request(self, index: int, regimes: Sequence[str]) -> Request:
        task = self.plan.tasks[index]
        against = {regime: self._against(task, regime) for regime in regimes}
        return Request(index, regimes, against=against)

    def _against(self, task: Task, regime: str) -> dict[str, str]:
        """What was chosen for a request, or why there is none; nothing where there is no choice."""
        choice = task.cell.in_regime(regime).choice(self.view.parameters)
        if choice is None:
            return {}
        record = self.view.chosen(choice, self.on)
        if record is None:
            return {"absent": "it was not measured"}
        if record.status != "ok":
            return {"absent": record.reason or record.status}
        return asdict(partner(record.result))
