"""The job that tries the timer: which measured cells it is tried on, and on which GPUs."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from ladder.gpu.discovery import FoundGpu, find_gpus, of_one_model
from ladder.measure.gpu_job import run_on_gpu
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import read_store
from ladder.measure.subjects import Subject, TableRow, subject
from ladder.model.folders import RunFolder
from ladder.model.intervals import median
from ladder.model.plan import Plan
from ladder.model.record import Session

_TARGETS_US = (4.0, 7.0, 15.0, 50.0, 100.0, 250.0, 1000.0, 3000.0, 10000.0, 20000.0)
_CLOSE = 2.0  # a cell stands for a target when its time is within this factor


def measured(view: PlanRecords) -> Iterator[Subject]:
    for index, task in view.launched():
        record = view.current_record(task)
        if record is not None and record.status == "ok":
            yield subject(view.plan, index, median(record.result["variant_us"]))


def nearest(known: Sequence[Subject], targets: Sequence[float]) -> list[Subject]:
    """Those whose times lie nearest to the targets, each once, in order of time."""
    chosen: dict[str, Subject] = {}
    for target in targets if known else ():
        best = min(known, key=lambda subject: abs(math.log(subject.median_us / target)))
        if abs(math.log(best.median_us / target)) < math.log(_CLOSE):
            chosen[best.name] = best
    return sorted(chosen.values(), key=lambda subject: subject.median_us)


def subjects(view: PlanRecords) -> list[Subject]:
    """The subjects of a sweep: from a few us to 20 ms."""
    return nearest(list(measured(view)), _TARGETS_US)


def places(gpus: Sequence[FoundGpu], sessions: Mapping[str, Session]) -> list[list[FoundGpu]]:
    """Where the timer is tried: on each GPU that has a session; where none has, on one of all."""
    used = {session.gpu.get("uuid") for session in sessions.values()}
    known = {gpu.uuid for gpu in gpus}
    if elsewhere := sorted(str(uuid) for uuid in used - known if uuid):
        logging.warning("not tried on GPUs that are not visible here: %s", ", ".join(elsewhere))
    return [[gpu] for gpu in gpus if gpu.uuid in used] or [list(gpus)]


def _tried(
    subjects_of: Mapping[Path, tuple[Plan, Sequence[Subject]]], root: Path, gpus: Sequence[FoundGpu]
) -> list[TableRow]:
    """Rows from one of the GPUs: a process for each plan, because NVBench runs once in each."""
    found = list[TableRow]()
    for path, (plan, subjects) in subjects_of.items():
        request = [(one.index, one.median_us) for one in subjects]
        gpu, answer = run_on_gpu("validate_timer", path, plan, root, gpus, request)
        for row in answer["clock_nvbench"]:
            said = (gpu.uuid, row["subject"], row["median_us"], row["nvbench_us"])
            logging.info("%s: %s: %.2f us here, %.2f us by NVBench", *said)
            found.append({"gpu_uuid": gpu.uuid, "sweep": plan.sweep, **row})
        gpus = [gpu]
    return found


def validate_timer(plans: Mapping[Path, Plan], folder: RunFolder, root: Path, jobs: int) -> list[TableRow]:
    """Rows of clock_nvbench, with the cells of `plans`; `jobs` GPUs at a time.

    Raises LadderError without a GPU, or where a process fails.
    """
    store, gpus = read_store(folder.records), of_one_model(find_gpus(), folder.root.name)
    subjects_of = {path: (plan, subjects(PlanRecords(plan, store))) for path, plan in plans.items()}
    for plan, chosen in subjects_of.values():
        if not chosen:
            logging.warning("%s: no cell was measured that the timer could be tried on", plan.sweep)
    if not (subjects_of := {path: given for path, given in subjects_of.items() if given[1]}):
        return []
    with ThreadPoolExecutor(jobs) as pool:
        found = pool.map(partial(_tried, subjects_of, root), places(gpus, store.sessions))
        return [row for rows in found for row in rows]
