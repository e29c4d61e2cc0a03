"""A profiling job: counters of the tasks that a plan wants counted and the store does not have yet."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ladder.gpu.card import driver_version
from ladder.gpu.discovery import find_gpus
from ladder.gpu.lock import one_gpu
from ladder.measure import host
from ladder.measure.conditions import Compiled, compiled, tree_conditions
from ladder.measure.profiler import Metric, Note, Profiler, ProfilerUnavailable, wanted_metrics
from ladder.measure.store import Records, append_all, read_store
from ladder.model.cell import COUNTERS
from ladder.model.files import read_json, write_json
from ladder.model.folders import RunFolder
from ladder.model.plan import Plan
from ladder.model.record import Conditions, Record, Session


def worth_counting(plan: Plan, made: Compiled, records: Records) -> list[int]:
    """Tasks that the plan wants counted and that were measured with success."""
    found = []
    for index, task in enumerate(plan.tasks):
        if task.counted and made.broken(task) is None:
            record = records.latest(task.cell, tree_conditions(plan, task, plan.regimes[0], made))
            if record is not None and record.status == "ok":
                found.append(index)
    return found


def uncounted(
    plan: Plan, made: Compiled, records: Records, on: Mapping[str, str], indices: list[int]
) -> list[int]:
    """Those of `indices` without counters under today's conditions."""
    return [
        index
        for index in indices
        if records.latest(
            plan.tasks[index].cell.in_regime(COUNTERS),
            tree_conditions(plan, plan.tasks[index], COUNTERS, made),
            on,
        )
        is None
    ]


@dataclass(frozen=True)
class Counting:
    """Makes records of what was counted."""

    plan: Plan
    made: Compiled
    on: Mapping[str, str]
    session: Session

    def record(self, index: int, metrics: list[Metric]) -> Record:
        """The counters of one task."""
        task = self.plan.tasks[index]
        tree = tree_conditions(self.plan, task, COUNTERS, self.made)
        return Record(
            cell=task.cell.in_regime(COUNTERS),
            conditions=Conditions(tree, self.on),
            variant=task.variant,
            sweep=self.plan.sweep,
            session=self.session.id,
            time=host.now(),
            status="ok",
            result={"observations": metrics},
        )


def count(path: Path, plan: Plan, folder: RunFolder, root: Path, timeout_s: float, enabled: bool) -> None:
    """Collect the counters that are missing; what cannot be had becomes a note in the job's account."""
    notes: list[Note] = []
    if plan.counter_groups and not enabled:
        notes = [{"subject": "counters", "reason": "profile.enabled is false in the configuration"}]
    elif plan.counter_groups:
        notes = _count(path, plan, folder, root, timeout_s)
    write_json(folder.profiled(plan.sweep), {"notes": notes})


def _count(path: Path, plan: Plan, folder: RunFolder, root: Path, timeout_s: float) -> list[Note]:
    made, records = compiled(plan, folder), read_store(folder.records)
    gpus = find_gpus()
    indices = worth_counting(plan, made, records)
    on = {
        "gpu": gpus[0].name if gpus else "none",
        "driver": driver_version() or "unknown",
        "ncu": host.ncu_version() or "none",
    }
    todo = uncounted(plan, made, records, on, indices)
    if not todo:
        old = read_json(folder.profiled(plan.sweep)) or {}
        kept: list[Note] = old.get("notes", [])
        return kept
    try:
        with one_gpu(gpus) as (gpu, lock):
            words = (path, folder.cubins, folder.harness(plan.problem))
            worker = [sys.executable, "-m", "ladder.measure.profile_worker", *(str(word) for word in words)]
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid}
            profiler = Profiler(worker, timeout_s, environment, lock)
            found, notes = profiler.count(todo, wanted_metrics(plan.counter_groups))
            capability = ".".join(str(part) for part in gpu.capability)
            session = host.session(gpu.uuid, root, {"name": gpu.name, "compute_capability": capability})
    except ProfilerUnavailable as error:
        return [{"subject": "counters", "reason": str(error)}]
    counting = Counting(plan, made, on, session)
    counted = [counting.record(index, metrics) for index, metrics in zip(todo, found, strict=True)]
    append_all(folder.records, f"{plan.sweep}-counters", [session, *counted])
    logging.info("%s: counters of %d cells", plan.sweep, len(counted))
    return notes
