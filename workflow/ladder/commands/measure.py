"""Verify and time the cells of a sweep on a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

_LEAVING_S = 10.0
"""A process that was killed is listed until the driver has cleared its context away."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--plan", type=Path, required=True, help="plan of the sweep")
    parser.add_argument("--cubins", type=Path, required=True, help="folder of compiled variants")
    parser.add_argument("--harness", type=Path, required=True, help="compiled harness")
    parser.add_argument("--cells", type=Path, required=True, help="record to update")
    parser.add_argument("--job", type=Path, required=True, help="JSON about the job to write")
    parser.add_argument("--deadline-s", type=float, default=60.0, help="seconds a cell may take")
    parser.add_argument("--throttle-share", type=float, default=0.05)
    parser.add_argument("--busy", choices=["refuse", "mark"], default="refuse")
    parser.add_argument("--lock-clocks", type=int, help="SM clock in MHz to hold while measuring")
    parser.add_argument("--remeasure", action="store_true", help="measure every cell anew")


def run(arguments: argparse.Namespace) -> int:
    """Keep unchanged cells, measure the others; statuses are data, so only a broken set-up is an error."""
    import os
    import time

    from ladder.cells import RecordFile
    from ladder.discovery import find_gpus
    from ladder.environment import measuring_host
    from ladder.errors import LadderError
    from ladder.gpu_lock import one_gpu
    from ladder.plan import read_plan
    from ladder.supervisor import (
        Supervisor,
        WorkerProcess,
        cubin_digests,
        end_with_parent,
        finish,
        now,
        split_cells,
        worker_command,
    )

    begun = time.monotonic()
    started = now()
    end_with_parent(os.getppid())
    plan = read_plan(arguments.plan)
    gpus = find_gpus()
    if not gpus:
        raise LadderError(
            "no GPU is visible: set CUDA_VISIBLE_DEVICES, or the configuration's `device: none`"
        )
    # One job, one GPU model: the cells' keys name it.
    gpus = [gpu for gpu in gpus if gpu.name == gpus[0].name]
    host = measuring_host(gpus[0].name)
    digests = cubin_digests(plan, arguments.cubins)
    todo, kept = split_cells(plan, digests, host, arguments.cells, arguments.remeasure)
    cell_count = len(kept) + len(todo)
    order = _in_order(plan, digests, host)
    if not todo:
        finish(arguments.cells, order)
        _write_job(arguments.job, None, cell_count, len(kept), started, begun)
        return 0
    from ladder.monitor import Monitor

    with one_gpu(gpus) as (gpu, lock), Monitor(gpu.uuid) as monitor:
        own: set[int] = set()
        neighbours = monitor.neighbours_that_stay(_LEAVING_S)
        if neighbours and arguments.busy == "refuse":
            raise LadderError(
                f"measure.busy: {gpu.name} is used by other processes ({neighbours}); wait for them, "
                "or set it to mark"
            )

        def start_worker() -> WorkerProcess:
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid}
            worker = WorkerProcess(
                worker_command(arguments.plan, arguments.cubins, arguments.harness), environment, [lock]
            )
            own.add(worker.pid)
            return worker

        def describe_device(since: float) -> dict[str, object]:
            reading = monitor.since(since, arguments.throttle_share)
            return reading | {"busy": bool(monitor.neighbours(own))}

        supervisor = Supervisor(start_worker, plan["cells"], arguments.deadline_s, describe_device)
        record_file = RecordFile(arguments.cells)
        with monitor.locked_clocks(arguments.lock_clocks):
            supervisor.run(todo, record_file)
        record_file.close()
    finish(arguments.cells, order)
    _write_job(arguments.job, supervisor.job, cell_count, len(kept), started, begun)
    return 0


def _in_order(plan: dict[str, object], digests: dict[str, str], host: dict[str, str]) -> list[str]:
    from ladder.cells import cell_key

    cells = plan["cells"]
    assert isinstance(cells, list)
    return [cell_key(cell, plan, digests, host) for cell in cells if "launch" in cell]


def _write_job(path: Path, job: object, cells: int, kept: int, started: str, begun: float) -> None:
    """Write job.json; a job that kept everything leaves the figures of the one that measured."""
    import json
    import time
    from dataclasses import asdict

    from ladder.supervisor import Job, now
    from ladder.tables import replace_file

    if job is None and path.is_file():
        text = path.read_text(encoding="utf-8")
    else:
        done = job if isinstance(job, Job) else Job()
        done.cells, done.kept = cells, kept
        done.started, done.finished = started, now()
        done.wall_s = round(time.monotonic() - begun, 3)
        done.gpu_s = round(done.gpu_s, 3)
        text = json.dumps(asdict(done), indent=1) + "\n"
    replace_file(path, text.encode("utf-8"))
