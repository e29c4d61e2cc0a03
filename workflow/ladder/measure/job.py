"""A measuring job: the cells of one plan that the store does not have yet, on a GPU to itself."""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from ladder.gpu.clocks import locked_clocks
from ladder.gpu.discovery import FoundGpu, driver_version, find_gpus
from ladder.gpu.monitor import Monitor
from ladder.measure import host
from ladder.measure.conditions import host_conditions
from ladder.measure.gpu_job import gpu_program
from ladder.measure.store import Append, Records, appending, now, read_store
from ladder.measure.supervisor import Answer, Supervisor, WorkerProcess
from ladder.measure.tuning import FASTEST, Rivals, fastest, rivals
from ladder.measure.view import View
from ladder.model.cell import SUSTAINED, cell_name
from ladder.model.errors import LadderError, refuse
from ladder.model.files import read_json, write_json
from ladder.model.folders import RunFolder
from ladder.model.intervals import median
from ladder.model.plan import Plan, Task
from ladder.model.record import Record, Session

_LEAVING_S = 10.0  # a process that was killed is listed until the driver has cleared its context away

Due = list[tuple[int, list[str]]]  # tasks by their index in the plan, with the regimes to measure


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


def unmeasured(view: View, on: Mapping[str, str] | None, uuid: str | None = None, began: str = "") -> Due:
    """What of a plan no record stands for, on a host with the conditions `on` (any, if None).

    On the GPU `uuid` also what has fewer sessions there than a repeated cell must have. `began`: when the run did, now
    if it is "".
    """
    plan, deadline_s, least = view.plan, view.plan.job["deadline_s"], view.plan.job["sessions"]
    began = began or now()

    def wanted(task: Task, regime: str) -> bool:
        record = view.find(task, regime, on)
        if record is None or not settled(view.alike(record), deadline_s, began):
            return True
        if uuid is None or least == 1 or not task.repeated or record.status != "ok":
            return False
        if regime not in plan.regimes:  # sustained beside the sweep's own regimes: once, since it takes long
            return False
        good = [one for one in view.alike(record) if one.status == "ok"]
        here = {one.session for one in good if view.session(one).gpu.get("uuid") == uuid}
        return len(here) < int(least)

    found = [(index, task) for index, task in view.launched()]
    asked = [(index, [one for one in plan.regimes_of(task) if wanted(task, one)]) for index, task in found]
    return [(index, regimes) for index, regimes in asked if regimes]


def _undecided(view: View, todo: Due) -> tuple[list[Rivals], list[Rivals]]:
    """Rivals of which some are first `todo`, and those among which the fastest are known."""
    missing = {index for index, regimes in todo if view.plan.regimes[0] in regimes}
    parts: tuple[list[Rivals], list[Rivals]] = [], []
    for among in rivals(view):
        parts[missing.isdisjoint(index for index, _ in among)].append(among)
    return parts


def due(view: View, on: Mapping[str, str] | None, uuid: str | None = None, began: str = "") -> Due:
    """What of a plan is to be measured: what is `unmeasured`, and the fastest of rivals that are all measured.

    These are due until a later process than the one that chose them has measured them.
    """
    began = began or now()
    todo = unmeasured(view, on, uuid, began)
    found, deadline_s = dict(todo), view.plan.job["deadline_s"]
    for among in _undecided(view, todo)[1]:
        for chosen in fastest(view, among, on):
            if not settled(chosen.later, deadline_s, began):
                found[chosen.index] = [view.plan.regimes[0], *found.get(chosen.index, [])]
    return sorted(found.items())


def most_again(view: View, todo: Due) -> int:
    """How many cells at most are measured again once what is `todo` is measured."""
    return sum(min(FASTEST, len(among)) for among in _undecided(view, todo)[0])


def _requests(regimes: list[str]) -> Iterator[list[str]]:
    """Sustained apart: it takes long, at other clocks, and its failure is not the other regimes'."""
    for part in ([one for one in regimes if one != SUSTAINED], [one for one in regimes if one == SUSTAINED]):
        if part:
            yield part


def shuffled(todo: Due, plan: Plan) -> Due:
    """In another order: cells of the same inputs stay together, and both they and their groups are shuffled."""
    groups = dict[tuple[Any, ...], Due]()
    for index, regimes in todo:
        groups.setdefault(plan.tasks[index].cell.operands, []).append((index, regimes))
    order = random.sample(list(groups.values()), len(groups))
    return [one for group in order for one in random.sample(group, len(group))]


@dataclass
class Job:
    """What a measuring job did: tasks of the plan, kept and measured, wall and GPU time, and when."""

    cells: int = 0
    kept: int = 0
    measured: int = 0
    wall_s: float = 0.0
    gpu_s: float = 0.0
    check_s: float = 0.0
    worker_starts: int = 0
    started: str = field(default_factory=now)
    finished: str = ""


@dataclass
class Measuring:
    """The loop over a plan's due tasks. `begin_session` makes a worker's session from what it says of its GPU."""

    view: View
    on: Mapping[str, str]
    watch: Monitor
    begin_session: Callable[[Mapping[str, Any]], Session]
    job: Job
    session: str = ""
    algorithms: dict[tuple[Any, ...], dict[str, str]] = field(default_factory=dict)
    """Of libraries, by operands and name, as the latest records have them: those that workers take."""

    def run(self, todo: Due, start: Callable[[], WorkerProcess], append: Append) -> None:
        """Measure what is due. Raises LadderError where no worker starts."""
        own, begun, plan = set[int](), time.monotonic(), self.view.plan
        for record in sorted(self.view.records, key=lambda record: record.time):
            self.keep_algorithms(record)

        def on_start(worker: WorkerProcess) -> None:
            own.add(int(worker.hello["pid"]))
            session = self.begin_session(worker.hello["gpu"])
            self.session = session.id
            append(session)

        supervisor = Supervisor(start, plan.job["deadline_s"], on_start)
        try:
            requests = [(index, part) for index, regimes in todo for part in _requests(regimes)]
            for done, (index, regimes) in enumerate(requests, 1):
                since = time.monotonic()
                cell = plan.tasks[index].cell
                answer = supervisor.measure(index, regimes, self.algorithms.get(cell.operands, {}))
                device = {**self.watch.since(since), "busy": bool(self.watch.neighbours(own))}
                for result in answer["results"].values():
                    if blocks := result.pop("blocks", None):
                        result["sustained"] = {side: self.steady(of) for side, of in blocks.items()}
                records = list(self.records(plan.tasks[index], answer, device))
                for record in records:
                    append(record)
                    self.keep_algorithms(record)
                self.job.measured += 1
                self.job.gpu_s += answer["gpu_s"]
                self.job.check_s += answer["check_s"]
                left = (time.monotonic() - begun) / done * (len(requests) - done)
                logging.info("[%d/%d, %.0f s left] %s", done, len(requests), left, progress(records[0]))
        finally:
            self.job.worker_starts += supervisor.worker_starts
            supervisor.leave()

    def steady(self, blocks: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
        """Power and clock of one side in its blocks, and the energy of a launch in J."""
        power_w = self.watch.power_w([(block["begin_s"], block["end_s"]) for block in blocks])
        us = fmean(block["us"] for block in blocks)
        found = {"power_w": power_w, "launch_j": power_w * us / 1e6 if power_w is not None else None}
        return found | {"sm_clock_mhz": round(fmean(block["sm_clock_mhz"] for block in blocks), 1)}

    def keep_algorithms(self, record: Record) -> None:
        """Have later cells with the same operands take this record's algorithms, if they choose from one list."""
        name, tree = "lt_heuristics", record.conditions.tree
        of_one_list = tree.get("settings", {}).get(name) == self.view.plan.settings.get(name)
        if of_one_list and record.conditions.host == self.on:
            known = self.algorithms.setdefault(record.cell.operands, {})
            known.update(record.result.get("algorithms", {}))

    def records(self, task: Task, answer: Answer, device: Mapping[str, Any]) -> Iterator[Record]:
        """A record a regime."""
        facts = self.view.plan.variants[task.variant]
        built = {name: facts.get(name) for name in ("source_sha256", "cubin_sha256", "nvrtc")}
        spent = {
            "gpu_s": answer["gpu_s"],
            "check_s": answer["check_s"],
            "once_s": answer["once_s"],
            "wall_s": answer["wall_s"],
            "regimes": len(answer["results"]),
        }
        around = {"device": device, "built": built, "spent": spent}
        for regime, given in answer["results"].items():
            own = {name: given[name] for name in ("status", "reason", "limit_s") if name in given}
            result = {name: value for name, value in given.items() if name not in own} | around
            yield self.view.new_record(task, regime, self.on, self.session, **own, result=result)


def progress(record: Record) -> str:
    """One line about a measured cell, for a person."""
    head, result = cell_name(record.variant, record.cell), record.result
    if record.status != "ok":
        return f"{head}: {record.status}: {(record.reason or 'no reason').splitlines()[0][:120]}"
    half = (result["speedup_high"] - result["speedup_low"]) / 2
    pairs, us = len(result["variant_us"]), median(result["variant_us"])
    speed = f"{result['speedup']:.4f} ± {half:.4f} of {result['reference']}"
    return f"{head}: {us:.2f} us, {speed} ({pairs} pairs, {result['stopped_by']})"


def share_of(plan: Plan, share: int) -> set[int]:
    """Tasks of one of the `split` shares of a plan, from 1 on: every so many variants, each with all its tasks."""
    place = {name: index for index, name in enumerate(dict.fromkeys(task.variant for task in plan.tasks))}
    parts = int(plan.job["split"])
    return {index for index, task in enumerate(plan.tasks) if place[task.variant] % parts == share - 1}


def accounts(plan: Plan) -> list[str]:
    """The accounts of a plan's measuring jobs: that of the whole plan, ahead of it those of shares."""
    parts = int(plan.job["split"])
    return [*(f"share-{share}" for share in range(1, parts + 1) if parts > 1), "measured"]


def measure(path: Path, plan: Plan, folder: RunFolder, root: Path, share: int | None = None) -> None:
    """Measure what is due of the plan at `path`, then what is the fastest of it once more; of a share only what is due.

    After its shares the whole plan has left what they left, on whichever GPU.

    Raises LadderError without a GPU, or where others use it.
    """
    parts, job, begun, gpus = int(plan.job["split"]), Job(), time.monotonic(), find_gpus()
    if share is not None and not 1 <= share <= parts:
        raise refuse("command line", "--share", share, f"a number from 1 to measure.split, which is {parts}")
    # One job, one GPU model: the conditions name it.
    gpus = [gpu for gpu in gpus if gpu.name == gpus[0].name]
    on = host_conditions(plan.problem, gpus[0].name if gpus else "none", driver_version())
    since = job.started
    shares = [] if share else [read_json(folder.account(name, plan.sweep)) for name in accounts(plan)[:-1]]
    own = set(range(len(plan.tasks))) if share is None else share_of(plan, share)

    def view_of(known: Records) -> View:
        return View(plan, known.since(since) if plan.job["remeasure"] else known)

    if plan.job["remeasure"] and not any(shares):
        view = View(plan, Records())
    else:
        since = min([since, *(str(one["started"]) for one in shares if one)])
        view = view_of(read_store(folder.records))

    def todo(gpu: FoundGpu | None) -> Due:
        found = (unmeasured if share else due)(view, on, gpu.uuid if gpu else None, job.started)
        return [one for one in found if one[0] in own]

    job.cells, sessions, used = (
        len([one for one, _ in view.launched() if one in own]),
        plan.job["sessions"],
        "",
    )
    job.kept = job.cells - len(todo(None))
    # What is the fastest is known once all is measured. It is measured again, on another GPU where one is free.
    for again in (False,) if share else (False, True):
        anywhere = again or bool(shares)
        wanting = [gpu for gpu in gpus if todo(None if anywhere else gpu)]
        wanting.sort(key=lambda gpu: gpu.uuid == used)
        if gpus and not wanting:
            continue
        program_for = gpu_program("measure", path, plan, root, wanting)
        with program_for as program, Monitor(program.gpu.uuid) as monitor:
            gpu, used = program.gpu, program.gpu.uuid
            if plan.job["busy"] == "refuse" and (others := monitor.neighbours_that_stay(_LEAVING_S)):
                why = "wait for them, or set it to mark"
                raise LadderError(f"measure.busy: other processes use the GPU ({others}); {why}")
            start = partial(WorkerProcess, program.command, program.environment, [program.lock])
            begin = partial(host.session, gpu.uuid, root)
            with locked_clocks(gpu.uuid, plan.settings["lock_clocks"]):
                for _ in range(1 if anywhere else sessions):
                    if not (asked := todo(None if anywhere else gpu)):
                        break
                    with appending(folder.records, plan.sweep) as append:
                        asked = asked if sessions == 1 else shuffled(asked, plan)
                        Measuring(view, on, monitor, begin, job).run(asked, start, append)
                    view = view_of(read_store(folder.records))
    job.finished, job.wall_s, job.gpu_s = now(), round(time.monotonic() - begun, 3), round(job.gpu_s, 3)
    job.check_s = round(job.check_s, 3)
    account = folder.account(f"share-{share}" if share else "measured", plan.sweep)
    # A job that kept everything leaves the account of the one that measured.
    write_json(account, (read_json(account) if job.measured == 0 else None) or asdict(job))
