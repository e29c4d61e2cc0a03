"""How long a whole tuning sweep takes from an empty cache: `python tests/throughput.py OUT.json [--gpus 2]`.

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
from ladder.measure.account import accounts
from ladder.measure.store import now
from ladder.model.files import read_json, write_json
from ladder.model.folders import Project
from ladder.model.plan_file import read_plan

NAME = "throughput"


def words_of(sweep: str, path: Path, cache: Path, root: Path, cores: str, gpus: int) -> list[str]:
    """Arguments of snakemake to measure a sweep with a cache of its own."""
    return [
        *(path.relative_to(root).as_posix(), "--cores", cores, "--quiet", "--nolock"),
        *("--resources", f"gpu={gpus}", "--config", f"run={NAME}", f"sweeps=[{sweep}]"),
        *(f"compile={{cache: {cache.relative_to(root).as_posix()}}}", f"measure={{split: {gpus}}}"),
    ]


def summary(jobs: list[dict[str, Any]], wall_s: float) -> dict[str, Any]:
    """Figures of a sweep's jobs by their accounts: those of shares, which run side by side, and the one after them."""
    wall, gpu, check = (sum(job[name] for job in jobs) for name in ("wall_s", "gpu_s", "check_s"))
    together_s = max((job["wall_s"] for job in jobs[:-1]), default=0.0)
    return {
        "cells": jobs[-1]["cells"],
        "wall_s": wall_s,
        "measure_wall_s": round(together_s + jobs[-1]["wall_s"], 2),
        "gpu_s": gpu,
        "gpu_share": round(gpu / wall, 4),
        "check_share": round(check / gpu, 4) if gpu else None,
    }


def measure(root: Path, sweep: str, cores: str, gpus: int) -> dict[str, Any]:
    """Time a sweep. Exits with a message without the GPUs, or where snakemake fails."""
    own, found = Project(root), find_gpus()
    if len(found) < gpus:
        sys.exit(f"--gpus {gpus}: {len(found)} GPUs are visible")
    folder, cache = own.run(NAME, found[0].slug), own.results / NAME / "cubins"
    shutil.rmtree(cache.parent, ignore_errors=True)
    path = folder.account("measured", sweep)
    command = snakemake_command(*words_of(sweep, path, cache, root, cores, gpus))
    started, begun = now(), time.monotonic()
    done = subprocess.run(command, cwd=root, check=False)
    wall_s = round(time.monotonic() - begun, 2)
    if done.returncode != 0 or not path.is_file():
        sys.exit(f"{' '.join(command)}: ended with exit code {done.returncode}, without {path}")
    names = accounts(read_plan(folder.plan(sweep)))
    jobs = [account for name in names if (account := read_json(folder.account(name, sweep)))]
    about = {"sweep": sweep, "started": started, "gpus": gpus, "variants": len(list(cache.glob("*.cubin")))}
    return about | summary(jobs, wall_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="JSON to write")
    parser.add_argument("--sweep", default="fp32_tiles")
    parser.add_argument("--cores", default="all", help="cores for snakemake")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs that share the sweep")
    words = parser.parse_args()
    figures = measure(ROOT, words.sweep, words.cores, words.gpus)
    write_json(words.out, figures)
    print("from an empty cache:", json.dumps(figures))


if __name__ == "__main__":
    main()
