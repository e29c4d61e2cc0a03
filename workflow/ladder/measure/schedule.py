"""What a measuring job measures next: by its plan, the records there are, the host's conditions, and the GPU."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ladder.measure.plan_records import ABSENT, FASTEST, Competitors, PlanRecords
from ladder.measure.request import Request
from ladder.measure.store import Records, now
from ladder.model.cell import SUSTAINED, Cell
from ladder.model.errors import refuse
from ladder.model.plan import Plan, Task
from ladder.model.record import Record

Due = list[tuple[int, list[str]]]
"""Tasks by their index in the plan, with the regimes to measure."""


class Mode(StrEnum):
    """What one pass of a job is after."""

    DUE = "due"
    """What no record stands for, sessions that repeated cells lack on this GPU, and winners that are known."""
    REMEASURE = "remeasure"
    """The same, whatever was measured before the run."""
    SHARE = "share"
    """The same of the variants of one share, without winners: they are known once all shares are measured."""
    WINNERS = "winners"
    """What is left on whichever GPU: the fastest of competitors, in a later process than the one that chose them."""


def settled(records: Sequence[Record], deadline_s: float, began: str) -> bool:
    """Whether a cell's records under equal conditions say what becomes of it.

    None does that ran into a deadline shorter than today's, nor did another process's memory in an earlier run than the
    one that `began` then. An error of a launch counts once two sessions had it, or this run.
    """
    failed = {record.session for record in records if record.status == "launch_error"}

    def counts(record: Record) -> bool:
        if record.status == "timeout":
            return (record.limit_s or 0.0) >= deadline_s
        if record.result.get("transient"):
            return record.time >= began
        return record.status != "launch_error" or len(failed) > 1 or record.time >= began

    return any(map(counts, records))


def share_of(plan: Plan, share: int) -> set[int]:
    """Tasks of one of the `split` shares of a plan, from 1 on: every so many variants, each with all its tasks."""
    place = {name: index for index, name in enumerate(dict.fromkeys(task.variant for task in plan.tasks))}
    parts = int(plan.job["split"])
    return {index for index, task in enumerate(plan.tasks) if place[task.variant] % parts == share - 1}


RACE = 0.9
"""A rival stops whose interval lies wholly below so many times that of the best so far."""


@dataclass
class Schedule:
    """The cells of a plan that are still to be measured on a host with the conditions `on` (on any, if None).

    began: when the run did. share: the one that the job measures, 0 for the whole plan; shared: whether shares of it
    were measured before. since: when the run that measures all anew began, its shares included, else "".
    """

    view: PlanRecords
    on: Mapping[str, str] | None
    began: str = field(default_factory=now)
    share: int = 0
    shared: bool = False
    since: str = ""

    def __post_init__(self) -> None:
        """Raises LadderError for a share that the plan does not have."""
        parts = int(self.plan.job.get("split", 1))
        if not 0 <= self.share <= parts:
            accepted = f"a number from 1 to measure.split, which is {parts}"
            raise refuse("command line", "--share", self.share, accepted)
        self.own = share_of(self.plan, self.share) if self.share else {*range(len(self.plan.tasks))}
        self._best = dict[tuple[Any, ...], float]()
        self.look_at(self.view.records)

    def look_at(self, records: Records) -> None:
        """Go by these records from now on."""
        self.view = replace(self.view, records=records.since(self.since) if self.since else records)

    def take(self, records: Iterable[Record]) -> None:
        """Go by what was just measured, too."""
        records = list(records)
        self.view.records.add(records)
        for record in records:
            self._race_with(record)

    @property
    def plan(self) -> Plan:
        return self.view.plan

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The passes of the job: what is the fastest is known once all is measured."""
        if self.share:
            return (Mode.SHARE,)
        first = Mode.WINNERS if self.shared else Mode.REMEASURE if self.since else Mode.DUE
        return first, Mode.WINNERS

    def launched(self) -> Iterator[tuple[int, Task]]:
        """The job's tasks with something to measure, by their index in the plan."""
        return (one for one in self.view.launched() if one[0] in self.own)

    def due(self, mode: Mode = Mode.DUE, uuid: str | None = None) -> Due:
        """What a pass measures on the GPU `uuid`; without one no repeated cell lacks a session."""
        found = self._unmeasured(None if mode is Mode.WINNERS else uuid)
        if mode is not Mode.SHARE:
            found |= self._winners(found)
        return sorted(found.items())

    def _unmeasured(self, uuid: str | None) -> dict[int, list[str]]:
        """Regimes by task for which no record stands, or too few sessions on a GPU."""
        found = {
            index: [regime for regime in self.plan.regimes_of(task) if self._lacks(task, regime, uuid)]
            for index, task in self.launched()
        }
        return {index: regimes for index, regimes in found.items() if regimes}

    def _lacks(self, task: Task, regime: str, uuid: str | None) -> bool:
        record, least = self.view.current_record(task, regime, self.on), int(self.plan.job["sessions"])
        if record is None or not self._settled(self.view.same_conditions(record)):
            return True
        if record.result.get("reference") == ABSENT.reference and self._undecided(task, regime) is not None:
            return True
        if uuid is None or least == 1 or not task.repeated or record.status != "ok":
            return False
        if (
            regime not in self.plan.regimes
        ):  # sustained beside the sweep's own regimes: once, since it takes long
            return False
        good = [one for one in self.view.same_conditions(record) if one.status == "ok"]
        return len({one.session for one in good if self.view.session(one).gpu.get("uuid") == uuid}) < least

    def _settled(self, records: Sequence[Record]) -> bool:
        return settled(records, self.plan.job["deadline_s"], self.began)

    def _undecided(self, task: Task, regime: str) -> Cell | None:
        """The choice of a task's reference, if there is one and it must be measured first."""
        choice = task.cell.in_regime(regime).choice(self.view.parameters)
        record = self.view.chosen(choice, self.on) if choice is not None else None
        return (
            None
            if record is not None and self._settled(self.view.records.same_conditions(record))
            else choice
        )

    def _competitors(self, unmeasured: Mapping[int, list[str]], decided: bool) -> Iterator[Competitors]:
        """Competitors that are all measured, or else those of which some are not."""
        first = self.plan.regimes[0]
        for among in self.view.competitors():
            if decided == (not any(first in unmeasured.get(index, ()) for index, _ in among)):
                yield among

    def _winners(self, unmeasured: Mapping[int, list[str]]) -> dict[int, list[str]]:
        """The fastest of competitors that are all measured, until a later process has measured them."""
        first = self.plan.regimes[0]
        return {
            winner.index: [first, *unmeasured.get(winner.index, [])]
            for among in self._competitors(unmeasured, decided=True)
            for winner in self.view.fastest(among, self.on)
            if not self._settled(winner.later)
        }

    def most_again(self, uuid: str | None = None) -> int:
        """How many cells at most are measured again once what is due is measured."""
        among = self._competitors(self._unmeasured(uuid), decided=False)
        return sum(min(FASTEST, len(competitors)) for competitors in among)

    def in_order(self, due: Due) -> Due:
        """As the plan has them; for several sessions shuffled, and for races, which then meet a fast rival early.

        Cells of the same inputs stay together: their groups are shuffled, and each group.
        """
        if self.plan.job["sessions"] == 1 and not self.plan.job.get("race"):
            return due
        groups = dict[tuple[Any, ...], Due]()
        for index, regimes in due:
            groups.setdefault(self.plan.tasks[index].cell.operands, []).append((index, regimes))
        order = random.sample(list(groups.values()), len(groups))
        return [one for group in order for one in random.sample(group, len(group))]

    def choices(self, due: Due) -> list[int]:
        """Choices that what is due depends on and that must be measured first, by their index in the plan."""
        undecided = {
            choice.id
            for index, regimes in due
            for regime in regimes
            if (choice := self._undecided(self.plan.tasks[index], regime)) is not None
        }
        return [index for index, choice in enumerate(self.plan.choices) if choice.id in undecided]

    def requests(self, due: Due) -> Iterator[Request]:
        """What to ask a worker for, in order; the next one goes by the records of those before it.

        References come first: no kernel that is held against one has run in the process that measures it.
        """
        if self.plan.job.get("race"):
            for _, task in self.view.launched():
                for regime in self.plan.regimes_of(task):
                    if (record := self.view.current_record(task, regime, self.on)) is not None:
                        self._race_with(record)
        for index in self.choices(due):
            yield Request(index, [self.plan.choices[index].regime], choice=True)
        for index, regimes in self.in_order(due):
            task = self.plan.tasks[index]
            against = {regime: self.against(task, regime) for regime in regimes}
            # Sustained apart: it takes long, and its failure is not the other regimes'.
            for part in ([one for one in regimes if (one == SUSTAINED) == apart] for apart in (False, True)):
                if part:
                    chosen = {one: against[one] for one in part if against[one]}
                    yield Request(index, part, against=chosen, race=self._race(task, part))

    def against(self, task: Task, regime: str) -> dict[str, str]:
        """What was chosen for a request, or why there is none; nothing where there is no choice."""
        choice = task.cell.in_regime(regime).choice(self.view.parameters)
        if choice is None:
            return {}
        record = self.view.chosen(choice, self.on)
        if record is None or record.status != "ok":
            return {"absent": record.reason or record.status if record is not None else "it was not measured"}
        return {name: record.result[name] for name in ("reference", "algorithm")}

    def _rival(self, cell: Cell) -> tuple[Any, ...]:
        """What cells have in common that compute the same and are timed alike."""
        computed = (*cell.operands, *(cell.params[name] for name in self.view.parameters))
        return *computed, cell.regime, cell.reference.kernel, cell.reference.libraries

    def _race_with(self, record: Record) -> None:
        if record.status == "ok" and record.cell.kernel and self.plan.job.get("race"):
            rival, low = self._rival(record.cell), float(record.result.get("speedup_low", 0.0))
            self._best[rival] = max(low, self._best.get(rival, 0.0))

    def _race(self, task: Task, regimes: Iterable[str]) -> dict[str, float]:
        """By regime the speed-up below which a rival stops; none for what was measured before, such as winners."""
        if not self.plan.job.get("race") or task.beside:
            return {}
        best = {one: self._best.get(self._rival(task.cell.in_regime(one)), 0.0) for one in regimes}
        return {
            regime: RACE * low
            for regime, low in best.items()
            if low and self.view.current_record(task, regime, self.on) is None
        }
