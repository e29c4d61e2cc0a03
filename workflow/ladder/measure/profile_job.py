"""A profiling job: counters of the tasks that a plan wants counted and the store does not have yet."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from ladder.gpu.discovery import driver_version, find_gpus, of_one_model
from ladder.measure import host
from ladder.measure.gpu_job import gpu_program
from ladder.measure.ncu import Note, Profiler, ProfilerUnavailable, wanted_metrics
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import appending, read_store
from ladder.model.cell import COUNTERS
from ladder.model.files import read_json, write_json
from ladder.model.folders import RunFolder
from ladder.model.plan import Plan


def uncounted(view: PlanRecords, on: Mapping[str, str]) -> Iterator[int]:
    """Tasks to count that were measured with success and have no counters under today's conditions."""
    for index, task in view.launched():
        record = view.current_record(task) if task.counted else None
        if (
            record is not None
            and record.status == "ok"
            and view.current_record(task, COUNTERS, on) is None
        ):
            yield index


def count(path: Path, plan: Plan, folder: RunFolder, root: Path) -> None:
    """Collect the counters that are missing; what cannot be had becomes a note in the job's account."""
    notes: list[Note] = []
    if plan.counter_groups and not plan.job["profile"]["enabled"]:
        notes = [
            {
                "subject": "counters",
                "reason": "profile.enabled is false in the configuration",
            }
        ]
    elif plan.counter_groups:
        notes = _count(
            path, PlanRecords(plan, read_store(folder.records)), folder, root
        )
    write_json(folder.account("profiled", plan.sweep), {"notes": notes})


def _count(path: Path, view: PlanRecords, folder: RunFolder, root: Path) -> list[Note]:
    plan, gpus = view.plan, of_one_model(find_gpus(), folder.root.name)
    on = {"gpu": gpus[0].name if gpus else "none"}
    on |= {"driver": driver_version() or "unknown", "ncu": host.ncu_version() or "none"}
    todo = list(uncounted(view, on))
    if not todo:
        return list(
            (read_json(folder.account("profiled", plan.sweep)) or {}).get("notes", [])
        )
    try:
        with gpu_program("profile", path, plan, root, gpus) as program:
            gpu, profiler = (
                program.gpu,
                Profiler(program, plan.job["profile"]["timeout_s"]),
            )
            found, notes = profiler.count(todo, wanted_metrics(plan.counter_groups))
            capability = ".".join(str(part) for part in gpu.capability)
            session = host.session(
                gpu.uuid, root, {"name": gpu.name, "compute_capability": capability}
            )
    except ProfilerUnavailable as error:
        return [{"subject": "counters", "reason": str(error)}]
    with appending(folder.records, f"{plan.sweep}-counters") as append:
        append(session)
        for index, metrics in zip(todo, found, strict=True):
            result = {"observations": metrics}
            append(
                view.new_record(
                    plan.tasks[index],
                    COUNTERS,
                    on,
                    session.id,
                    status="ok",
                    result=result,
                )
            )
    logging.info("%s: counters of %d cells", plan.sweep, len(todo))
    return notes
