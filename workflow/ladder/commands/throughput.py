"""Time a whole tuning sweep from an empty cache."""

from __future__ import annotations

import argparse
from pathlib import Path

_RUN = "throughput"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--sweep", default="fp32_tiles", help="sweep to run (default: fp32_tiles)")
    parser.add_argument("--cores", default="all", help="cores for snakemake (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")


def run(arguments: argparse.Namespace) -> int:
    """Run the sweep in a run folder of its own, from nothing, and record wall time and the job's GPU share."""
    import json
    import logging
    import shutil
    import subprocess
    import sys
    import time

    from ladder.discovery import find_gpus
    from ladder.errors import LadderError
    from ladder.layout import Project
    from ladder.supervisor import now
    from ladder.tables import replace_file

    gpus = find_gpus()
    if not gpus:
        raise LadderError("no GPU is visible, and this step times one")
    project = Project(arguments.root)
    folder = project.results / _RUN
    if folder.exists():
        shutil.rmtree(folder)
    command = [sys.executable, "-m", "snakemake", "--cores", arguments.cores, "--quiet", "--nolock"]
    target = project.run(_RUN, gpus[0].slug).cells(arguments.sweep).relative_to(arguments.root)
    command += [target.as_posix(), "--config", f"run={_RUN}"]
    started = now()
    begun = time.monotonic()
    done = subprocess.run(command, cwd=arguments.root, check=False)
    wall_s = time.monotonic() - begun
    if done.returncode != 0:
        raise LadderError(f"{' '.join(command)}: ended with exit code {done.returncode}")
    jobs = sorted(folder.glob(f"*/sweeps/{arguments.sweep}/job.json"))
    if not jobs:
        raise LadderError(f"{folder}: the run measured nothing; is there a GPU?")
    job = json.loads(jobs[0].read_text(encoding="utf-8"))
    facts = sorted(jobs[0].parents[2].glob("cubins/*.json"))
    figures = {
        "sweep": arguments.sweep,
        "started": started,
        "variants": len(facts),
        "cells": job["cells"],
        "wall_s": round(wall_s, 2),
        "measure_wall_s": job["wall_s"],
        "gpu_s": job["gpu_s"],
        "gpu_share": round(job["gpu_s"] / job["wall_s"], 4),
    }
    replace_file(arguments.out, (json.dumps(figures, indent=1) + "\n").encode())
    logging.info(
        "%s: %d cells of %d variants in %.1f s from an empty cache; measuring %.1f s, %.0f %% of it GPU time",
        arguments.sweep,
        figures["cells"],
        figures["variants"],
        wall_s,
        job["wall_s"],
        100 * figures["gpu_share"],
    )
    return 0
