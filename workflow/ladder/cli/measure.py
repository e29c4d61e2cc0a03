"""Steps that need a GPU."""

import json
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ladder.cli.options import PlanFile, PlanFiles, folder_of, project
from ladder.gpu.discovery import find_gpus
from ladder.measure import job, profile_job, timer_validation_job
from ladder.measure.process_lifetime import end_with_parent
from ladder.measure.store import now
from ladder.model.errors import LadderError, refuse
from ladder.model.files import read_json, write_json
from ladder.model.plan import read_plan

_THROUGHPUT = "throughput"


def measure(
    context: typer.Context,
    plan: PlanFile,
    share: Annotated[int | None, typer.Option(help="One of measure.split shares of the variants.")] = None,
) -> None:
    """Verify and time the cells of a sweep on a GPU: those that the run's store does not have yet.

    Statuses are data, so only a broken set-up is an error.
    """
    end_with_parent()
    job.measure(plan, read_plan(plan), folder_of(plan), project(context).root, share)


def profile(context: typer.Context, plan: PlanFile) -> None:
    """Collect Nsight Compute counters for a sweep; what cannot be had becomes a note."""
    end_with_parent()
    profile_job.count(plan, read_plan(plan), folder_of(plan), project(context).root)


def clock(
    context: typer.Context,
    plans: PlanFiles,
    jobs: Annotated[int, typer.Option(min=1, help="GPUs at once.")] = 1,
) -> None:
    """Hold the timer against NVBench, on each GPU that the run has measured on.

    The cells of some plans of the run serve as subjects.
    """
    from ladder.results import tables  # pandas, which measuring does without

    end_with_parent()
    folder, given = folder_of(plans[0]), {path: read_plan(path) for path in plans}
    rows = timer_validation_job.validate_timer(given, folder, project(context).root, jobs)
    tables.write({"clock_nvbench": tables.frame("clock_nvbench", rows)}, folder.tables)


def throughput(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="JSON to write.")],
    sweep: Annotated[str, typer.Option(help="Sweep to run.")] = "fp32_tiles",
    cores: Annotated[str, typer.Option(help="Cores for snakemake.")] = "all",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that share the sweep.")] = 1,
) -> None:
    """Time a whole tuning sweep from an empty cache, in a run folder of its own: wall time, and the GPU share."""
    own, found = project(context), find_gpus()
    if not found:
        raise LadderError("no GPU is visible, and this step times one")
    if len(found) < gpus:
        raise refuse(
            "command line", "--gpus", gpus, f"at most the GPUs that are visible, which are {len(found)}"
        )
    folder = own.run(_THROUGHPUT, found[0].slug)
    cache = own.results / _THROUGHPUT / "cubins"
    shutil.rmtree(cache.parent, ignore_errors=True)
    path = folder.account("measured", sweep)
    command = [sys.executable, "-m", "snakemake", path.relative_to(own.root).as_posix(), "--cores", cores]
    command += ["--quiet", "--nolock", "--resources", f"gpu={gpus}"]
    command += ["--config", f"run={_THROUGHPUT}", f"sweeps=[{sweep}]"]
    command += [f"compile={{cache: {cache.relative_to(own.root).as_posix()}}}", f"measure={{split: {gpus}}}"]
    started, begun = now(), time.monotonic()
    done = subprocess.run(command, cwd=own.root, check=False)
    wall_s, last = round(time.monotonic() - begun, 2), read_json(path)
    if done.returncode != 0 or last is None:
        raise LadderError(f"{' '.join(command)}: ended with exit code {done.returncode}, without {path}")
    names = job.accounts(read_plan(folder.plan(sweep)))
    accounts = [account for name in names if (account := read_json(folder.account(name, sweep)))]
    spent = {name: sum(account[name] for account in accounts) for name in ("wall_s", "gpu_s", "check_s")}
    figures = {"sweep": sweep, "started": started, "gpus": gpus, "variants": len(list(cache.glob("*.cubin")))}
    # The shares run side by side, and the job that measures what they left after them.
    beside = max((account["wall_s"] for account in accounts[:-1]), default=0.0)
    figures |= {"cells": last["cells"], "wall_s": wall_s, "measure_wall_s": round(beside + last["wall_s"], 2)}
    figures |= {"gpu_s": spent["gpu_s"], "gpu_share": round(spent["gpu_s"] / spent["wall_s"], 4)}
    figures |= {"check_share": round(spent["check_s"] / spent["gpu_s"], 4) if spent["gpu_s"] else None}
    write_json(out, figures)
    logging.info("from an empty cache: %s", json.dumps(figures))
