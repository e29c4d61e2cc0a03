"""A profiling job: counters of the tasks that a plan wants counted and the store does not have yet."""

import logging
from collections.abc import Iterator
from dataclasses import replace
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


def uncounted(view: PlanRecords) -> Iterator[int]:
    """Tasks to count that were measured with success, on any host, and have no counters under today's conditions."""
    measured = replace(view, on=None)
    for index, task in view.launched():
        record = measured.current_record(task) if task.counted else None
        if record is None or record.status != "ok":
            continue
        if view.current_record(task, COUNTERS) is None:
            yield index


def count(path: Path, plan: Plan, folder: RunFolder, root: Path) -> None:
    """Collect the counters that are missing; what cannot be had becomes a note in the job's account."""
    notes = list[Note]()
    if plan.counter_groups:
        try:
            notes = _count(path, plan, folder, root)
        except ProfilerUnavailable as error:
            notes = [{"subject": "counters", "reason": str(error)}]
    write_json(folder.account("profiled", plan.sweep), {"notes": notes})


def _count(path: Path, plan: Plan, folder: RunFolder, root: Path) -> list[Note]:
    """Notes of metrics. Raises ProfilerUnavailable."""
    settings = plan.job["profile"]
    if not settings["enabled"]:
        raise ProfilerUnavailable("profile.enabled is false in the configuration")
    gpus = of_one_model(find_gpus(), folder.root.name)
    on = {
        "gpu": gpus[0].name if gpus else "none",
        "driver": driver_version() or "unknown",
        "ncu": host.ncu_version() or "none",
    }
    view = PlanRecords(plan, read_store(folder.records), on=on)
    indices = list(uncounted(view))
    if not indices:
        account = read_json(folder.account("profiled", plan.sweep)) or {}
        return list(account.get("notes", []))
    with gpu_program("profile", path, plan, root, gpus) as program:
        gpu = program.gpu
        profiler = Profiler(program, indices, settings["timeout_s"])
        counters, notes = profiler.count(wanted_metrics(plan.counter_groups))
        capability = ".".join(map(str, gpu.capability))
        facts = {"name": gpu.name, "compute_capability": capability}
        session = host.session(gpu.uuid, root, facts)
    with appending(folder.records, f"{plan.sweep}-counters") as append:
        append(session)
        for index, observations in zip(indices, counters, strict=True):
            task = plan.tasks[index]
            result = {"observations": observations}
            record = view.new_record(
                task, COUNTERS, session.id, status="ok", result=result
            )
            append(record)
    logging.info("%s: counters of %d cells", plan.sweep, len(indices))
    return notes
