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
from ladder.measure.account import Job
from ladder.measure.choice import choice_in_words
from ladder.measure.conditions import host_conditions
from ladder.measure.gpu_job import gpu_program
from ladder.measure.plan_records import PlanRecords
from ladder.measure.request import Request
from ladder.measure.schedule import Due, Mode, Schedule
from ladder.measure.store import Append, appending, now, read_store
from ladder.measure.supervisor import Supervisor, WorkerAnswer, WorkerProcess
from ladder.model.cell import cell_name
from ladder.model.errors import LadderError
from ladder.model.files import read_json, write_json
from ladder.model.folders import RunFolder
from ladder.model.intervals import median
from ladder.model.plan import Plan
from ladder.model.record import NO_NUMBER, Record, Session

_LEAVING_S = 10.0  # a process that was killed is listed until the driver has cleared its context away


@dataclass
class Measuring:
    """The loop over what is due. `begin_session` makes a worker's session from what it says of its GPU."""

    schedule: Schedule
    on: Mapping[str, str]
    monitor: Monitor
    begin_session: Callable[[Mapping[str, Any]], Session]
    job: Job
    session: str = ""

    def run(self, due: Due, start: Callable[[], WorkerProcess], append: Append) -> None:
        """Measure what is due. Raises LadderError where no worker starts."""
        worker_pids = set[int]()
        begun, done = time.monotonic(), 0
        most = len(self.schedule.choices(due)) + sum(len(regimes) for _, regimes in due)

        def on_start(worker: WorkerProcess) -> None:
            worker_pids.add(int(worker.hello["pid"]))
            session = self.begin_session(worker.hello["gpu"])
            self.session = session.id
            append(session)

        supervisor = Supervisor(start, self.schedule.plan.job["deadline_s"], on_start)
        try:
            for request in self.schedule.requests(due):
                asked = time.monotonic()
                answer = supervisor.measure(request)
                device = {
                    **self.monitor.since(asked),
                    "busy": bool(self.monitor.neighbours(worker_pids)),
                }
                for result in answer["results"].values():
                    self.complete(result)
                records = list(self.records(request, answer, device))
                for record in records:
                    append(record)
                self.schedule.take(records)
                done += len(records)
                self.job.measured += not request.choice
                self.job.gpu_s += answer["gpu_s"]
                self.job.check_s += answer["check_s"]
                left = (time.monotonic() - begun) / done * (most - done)
                logging.info(
                    "[%d/%d, %.0f s left] %s", done, most, left, progress(records[0])
                )
        finally:
            self.job.worker_starts += supervisor.worker_starts
            supervisor.leave()

    def complete(self, result: dict[str, Any]) -> None:
        """Put power and clock in place of blocks, and the largest number of JSON in place of an infinite error."""
        blocks = result.pop("blocks", None)
        if blocks:
            result["sustained"] = {
                side: self.steady(of_side) for side, of_side in blocks.items()
            }
        for observation in result.get("observations", ()):
            observation["value"] = min(observation["value"], NO_NUMBER)

    def steady(self, blocks: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
        """Power and clock of one side in its blocks, and the energy of a launch in J."""
        power_w = self.monitor.power_w(
            [(block["begin_s"], block["end_s"]) for block in blocks]
        )
        us = fmean(block["us"] for block in blocks)
        return {
            "power_w": power_w,
            "launch_j": power_w * us / 1e6 if power_w is not None else None,
            "sm_clock_mhz": round(fmean(block["sm_clock_mhz"] for block in blocks), 1),
        }

    def records(
        self, request: Request, answer: WorkerAnswer, device: Mapping[str, Any]
    ) -> Iterator[Record]:
        """A record a regime."""
        view = self.schedule.view
        spent = {
            name: answer[name] for name in ("gpu_s", "check_s", "once_s", "wall_s")
        }
        around: dict[str, Any] = {
            "device": device,
            "spent": spent | {"regimes": len(answer["results"])},
        }
        if not request.choice:
            facts = view.plan.variants[view.plan.tasks[request.index].variant]
            around["built"] = {
                name: facts.get(name)
                for name in ("source_sha256", "cubin_sha256", "nvrtc")
            }
        for regime, answered in answer["results"].items():
            fields = {
                name: answered[name]
                for name in ("status", "reason", "limit_s")
                if name in answered
            }
            result = {
                name: value for name, value in answered.items() if name not in fields
            }
            fields["result"] = result | around
            if request.choice:
                choice = view.plan.choices[request.index]
                yield view.new_choice(choice, self.on, self.session, **fields)
            else:
                task = view.plan.tasks[request.index]
                yield view.new_record(task, regime, self.on, self.session, **fields)


def progress(record: Record) -> str:
    """One line about a measured cell, for a person."""
    head, result = cell_name(record.variant, record.cell), record.result
    if record.status != "ok":
        return f"{head}: {record.status}: {(record.reason or 'no reason').splitlines()[0][:120]}"
    if not record.cell.kernel:
        return f"{head}: {choice_in_words(result)}"
    half = (result["speedup_high"] - result["speedup_low"]) / 2
    pairs, us = len(result["variant_us"]), median(result["variant_us"])
    speed = f"{result['speedup']:.4f} ± {half:.4f} of {result['reference']}"
    return f"{head}: {us:.2f} us, {speed} ({pairs} pairs, {result['stopped_by']})"


def measure(path: Path, plan: Plan, folder: RunFolder, root: Path) -> None:
    """Measure all cells of the plan at `path` without a valid record; of a tuning sweep then the fastest once more.

    Raises LadderError without a GPU, or where others use it.
    """
    job, begun = Job(), time.monotonic()
    # One job, one GPU model: the conditions name it.
    gpus = of_one_model(find_gpus(), folder.root.name)
    on = host_conditions(
        plan.problem, gpus[0].name if gpus else "none", driver_version()
    )
    schedule = Schedule(PlanRecords(plan, read_store(folder.records)), on, job.started)
    job.cells = len([*schedule.view.launched()])
    job.kept = job.cells - len(schedule.due())
    used = ""
    for mode in Mode:
        wanting = [gpu for gpu in gpus if schedule.due(mode, gpu.uuid)]
        wanting.sort(
            key=lambda gpu: gpu.uuid == used
        )  # winners on another GPU where one is free
        if gpus and not wanting:
            continue
        program_for = gpu_program("measure", path, plan, root, wanting)
        with program_for as program, Monitor(program.gpu.uuid) as monitor:
            gpu, used = program.gpu, program.gpu.uuid
            if plan.job["busy"] == "refuse" and (
                others := monitor.neighbours_that_stay(_LEAVING_S)
            ):
                why = "wait for them, or set it to mark"
                raise LadderError(
                    f"measure.busy: other processes use the GPU ({others}); {why}"
                )
            start = partial(
                WorkerProcess, program.command, program.environment, [program.lock]
            )
            begin = partial(host.session, gpu.uuid, root)
            with locked_clocks(gpu.uuid, plan.settings["lock_clocks"]):
                for _ in range(1 if mode is Mode.WINNERS else plan.job["sessions"]):
                    if not (due := schedule.due(mode, gpu.uuid)):
                        break
                    with appending(folder.records, plan.sweep) as append:
                        Measuring(schedule, on, monitor, begin, job).run(
                            due, start, append
                        )
                    schedule.look_at(read_store(folder.records))
    job.finished, job.wall_s, job.gpu_s = (
        now(),
        round(time.monotonic() - begun, 3),
        round(job.gpu_s, 3),
    )
    job.check_s = round(job.check_s, 3)
    account = folder.account("measured", plan.sweep)
    # A job that kept everything leaves the account of the one that measured.
    earlier = read_json(account) if job.measured == 0 else None
    write_json(account, earlier or asdict(job))
