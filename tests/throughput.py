"""How long a whole tuning sweep takes from an empty cache: `python tests/throughput.py OUT.json`.

It runs snakemake in a run folder of its own, results/throughput, and writes the wall time and the share of the GPU's.
Written to results/RUN/DEVICE/throughput.json it stands in that run's report.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from conftest import ROOT, snakemake_command
from ladder.gpu.discovery import find_gpus
from ladder.measure.store import now
from ladder.model.files import read_json, write_json
from ladder.model.folders import Project

NAME = "throughput"


def words_of(sweep: str, path: Path, cache: Path, root: Path, cores: str) -> list[str]:
    """Arguments of snakemake to measure a sweep with a cache of its own."""
    return [
        *(path.relative_to(root).as_posix(), "--cores", cores, "--quiet", "--nolock"),
        *("--config", f"run={NAME}", f"sweeps=[{sweep}]"),
        f"compile={{cache: {cache.relative_to(root).as_posix()}}}",
    ]


def summary(job: dict[str, Any], wall_s: float) -> dict[str, Any]:
    """Figures of a sweep by the account of its job."""
    gpu_s = job["gpu_s"]
    check_s = job["check_s"]
    return {
        "cells": job["cells"],
        "wall_s": wall_s,
        "measure_wall_s": job["wall_s"],
        "gpu_s": gpu_s,
        "gpu_share": round(gpu_s / job["wall_s"], 4),
        "check_share": round(check_s / gpu_s, 4) if gpu_s else None,
    }


def measure(root: Path, sweep: str, cores: str) -> dict[str, Any]:
    """Time a sweep. Exits with a message without a GPU, or where snakemake fails."""
    own = Project(root)
    gpus = find_gpus()
    if not gpus:
        sys.exit("no GPU is visible")
    folder = own.run(NAME, gpus[0].slug)
    cache = own.results / NAME / "cubins"
    shutil.rmtree(cache.parent, ignore_errors=True)
    path = folder.account("measured", sweep)
    command = snakemake_command(*words_of(sweep, path, cache, root, cores))
    started = now()
    begun = time.monotonic()
    done = subprocess.run(command, cwd=root, check=False)
    wall_s = round(time.monotonic() - begun, 2)
    job = read_json(path) if path.is_file() else None
    if done.returncode != 0 or job is None:
        sys.exit(
            f"{' '.join(command)}: ended with exit code {done.returncode}, without {path}"
        )
    about = {
        "sweep": sweep,
        "started": started,
        "variants": len(list(cache.glob("*.cubin"))),
    }
    return about | summary(job, wall_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="JSON to write")
    parser.add_argument("--sweep", default="fp32_tiles")
    parser.add_argument("--cores", default="all", help="cores for snakemake")
    words = parser.parse_args()
    figures = measure(ROOT, words.sweep, words.cores)
    write_json(words.out, figures)
    print("from an empty cache:", json.dumps(figures))


if __name__ == "__main__":
    main()
