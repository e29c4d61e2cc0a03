"""A measuring job: the cells of one plan that the store does not have yet, on a GPU to itself."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from ladder.gpu.clocks import locked_clocks
from ladder.gpu.discovery import driver_version, find_gpus, of_one_model
from ladder.gpu.monitor import Monitor
from ladder.measure import host
from ladder.measure.assignment import Assignment
from ladder.measure.choice import choice_in_words
from ladder.measure.conditions import host_conditions
from ladder.measure.gpu_job import gpu_program
from ladder.measure.plan_records import PlanRecords
from ladder.measure.schedule import Due, Schedule
from ladder.measure.store import Account, Append, appending, now, read_store
from ladder.measure.supervisor import Supervisor, WorkerAnswer, WorkerProcess
from ladder.model.cell import cell_name
from ladder.model.errors import LadderError
from ladder.model.files import read_json, write_json
from ladder.model.folders import RunFolder
from ladder.model.intervals import median
from ladder.model.plan import Plan
from ladder.model.record import NO_NUMBER, Record, Session

_BESIDE_THE_RESULT = ("status", "reason", "limit_s")  # fields of a record
_LEAVING_S = 10.0  # a process that was killed is listed until the driver has cleared its context away


OnRecords = Callable[[PlanRecords], None]


def ignore(view: PlanRecords) -> None:
    """Nobody looks at records while a job measures."""


@dataclass
class Measuring:
    """The loop over what is due. `begin_session` makes a worker's session from what it says of its GPU.

    `on_records` gets the plan with its records, when there are more.
    """

    schedule: Schedule
    monitor: Monitor
    begin_session: Callable[[Mapping[str, Any]], Session]
    account: Account
    on_records: OnRecords
    session: str = ""

    def run(self, due: Due, start: Callable[[], WorkerProcess], append: Append) -> None:
        """Measure what is due. Raises LadderError where no worker starts."""
        worker_pids = set[int]()
        begun = time.monotonic()
        done = 0
        most = len(self.schedule.choices(due)) + sum(len(regimes) for _, regimes in due)

        def on_start(worker: WorkerProcess) -> None:
            worker_pids.add(int(worker.hello["pid"]))
            session = self.begin_session(worker.hello["gpu"])
            self.session = session.id
            self.account.worker_starts += 1
            append(session)
            self.schedule.view.records.add([session])

        supervisor = Supervisor(start, self.schedule.plan.job["deadline_s"], on_start)
        try:
            for assignment in self.schedule.assignments(due):
                asked = time.monotonic()
                answer = supervisor.measure(assignment)
                busy = bool(self.monitor.neighbours(worker_pids))
                device = {**self.monitor.since(asked), "busy": busy}
                records = list(self.records(assignment, answer, device))
                for record in records:
                    append(record)
                self.schedule.view.records.add(records)
                self.on_records(self.schedule.view)
                self.account.measured += not assignment.choice
                self.account.gpu_s += answer["gpu_s"]
                self.account.check_s += answer["check_s"]
                done += len(records)
                left_s = (time.monotonic() - begun) / done * (most - done)
                where = f"[{done}/{most}, {left_s:.0f} s left]"
                logging.info("%s %s", where, progress(records[0]))
        finally:
            supervisor.leave()

    def records(
        self, assignment: Assignment, answer: WorkerAnswer, device: Mapping[str, Any]
    ) -> Iterator[Record]:
        """A record a regime."""
        view = self.schedule.view
        results = answer["results"]
        index = assignment.index
        spent = {
            "wall_s": answer["wall_s"],
            "check_s": answer["check_s"],
            "regimes": len(results),
        }
        common: dict[str, Any] = {"device": device, "spent": spent}
        if not assignment.choice:
            facts = view.plan.variants[view.plan.tasks[index].variant]
            names = ("source_sha256", "cubin_sha256", "nvrtc")
            common["built"] = {name: facts.get(name) for name in names}
        for regime, of_regime in results.items():
            result = self.complete(of_regime) | common
            fields = {name: result.pop(name, None) for name in _BESIDE_THE_RESULT}
            fields["result"] = result
            if assignment.choice:
                choice = view.plan.choices[index]
                yield view.new_decision(choice, self.session, **fields)
            else:
                task = view.plan.tasks[index]
                yield view.new_record(task, regime, self.session, **fields)

    def complete(self, answered: Mapping[str, Any]) -> dict[str, Any]:
        """A result with power and clock in place of blocks, and JSON's largest number in place of an infinite error."""
        result = {**answered}
        if "blocks" in result:
            blocks = result.pop("blocks").items()
            result["sustained"] = {side: self.steady(each) for side, each in blocks}
        for observation in result.get("observations", ()):
            observation["value"] = min(observation["value"], NO_NUMBER)
        return result

    def steady(self, blocks: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
        """Power and clock of one side in its blocks, and the energy of a launch in J."""
        windows = [(block["begin_s"], block["end_s"]) for block in blocks]
        power_w = self.monitor.power_w(windows)
        us = fmean(block["us"] for block in blocks)
        mhz = fmean(block["sm_clock_mhz"] for block in blocks)
        launch_j = None if power_w is None else power_w * us / 1e6
        return {
            "power_w": power_w,
            "launch_j": launch_j,
            "sm_clock_mhz": round(mhz, 1),
        }


def progress(record: Record) -> str:
    """One line about a measured cell, for a person."""
    head = cell_name(record.variant, record.cell)
    result = record.result
    if record.status != "ok":
        reason = (record.reason or "no reason").splitlines()[0]
        return f"{head}: {record.status}: {reason[:120]}"
    if not record.cell.kernel:
        return f"{head}: {choice_in_words(result)}"
    half = (result["speedup_high"] - result["speedup_low"]) / 2
    speed = f"{result['speedup']:.4f} ± {half:.4f} of {result['reference']}"
    times = result["variant_us"]
    pairs = f"{len(times)} pairs, {result['stopped_by']}"
    return f"{head}: {median(times):.2f} us, {speed} ({pairs})"


def measure(
    path: Path,
    plan: Plan,
    folder: RunFolder,
    root: Path,
    on_records: OnRecords = ignore,
) -> None:
    """Measure all cells of the plan at `path` without a valid record; of a tuning sweep then the fastest once more.

    `on_records` gets the plan with its records, whenever there are more. Raises LadderError without a GPU, or where
    others use it.
    """
    account = Account()
    begun = time.monotonic()
    # One job, one GPU model: the conditions name it.
    gpus = of_one_model(find_gpus(), folder.root.name)
    model = gpus[0].name if gpus else "none"
    on = host_conditions(plan.problem, model, driver_version())
    view = PlanRecords(plan, read_store(folder.records), on=on)
    schedule = Schedule(view, account.started)
    account.cells = len(list(schedule.view.launched()))
    account.kept = account.cells - len(schedule.due())
    used = ""
    # No cell lacks a session in the second pass, which is for winners.
    for winners in (False, True):
        wanting = [gpu for gpu in gpus if schedule.due(None if winners else gpu.uuid)]
        # Winners on another GPU where one is free.
        wanting.sort(key=lambda gpu: gpu.uuid == used)
        if gpus and not wanting:
            continue
        program_for = gpu_program("measure", path, plan, root, wanting)
        with program_for as program, Monitor(program.gpu.uuid) as monitor:
            if plan.job["busy"] == "refuse":
                _refuse_neighbours(monitor)
            used = program.gpu.uuid
            start = partial(WorkerProcess, program)
            begin = partial(host.session, used, root)
            measuring = Measuring(schedule, monitor, begin, account, on_records)
            with locked_clocks(used, plan.settings["lock_clocks"]):
                for _ in range(1 if winners else plan.job["sessions"]):
                    due = schedule.due(None if winners else used)
                    if not due:
                        break
                    with appending(folder.records, plan.sweep) as append:
                        measuring.run(due, start, append)
                    schedule.look_at(read_store(folder.records))
    account.finished = now()
    account.wall_s = round(time.monotonic() - begun, 3)
    account.gpu_s = round(account.gpu_s, 3)
    account.check_s = round(account.check_s, 3)
    file = folder.account("measured", plan.sweep)
    # A job that kept everything leaves the account of the one that measured.
    earlier = None if account.measured else read_json(file)
    write_json(file, earlier or asdict(account))


def _refuse_neighbours(monitor: Monitor) -> None:
    others = monitor.neighbours_that_stay(_LEAVING_S)
    if others:
        why = "wait for them, or set it to mark"
        raise LadderError(
            f"measure.busy: other processes use the GPU ({others}); {why}"
        )
