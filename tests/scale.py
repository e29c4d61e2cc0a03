"""A run of many cells and devices with made-up records, and what its steps cost: `python tests/scale.py 50000 20`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import GEMMS, ROOMS, ROOT, edit_yaml, environment, snakemake_command
from factory import Lab, Place, axis
from ladder.model.folders import PublishedFolder

SWEEP_COUNT = 10
SIZE_COUNT = 20


@dataclass(frozen=True)
class Cost:
    """CPU time of a step, and the most memory that one of its processes held."""

    seconds: float
    gib: float


_MOST_MEMORY = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, used = os.wait4(process.pid, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs a command and prints its CPU seconds and its peak in KiB. From a small process: Linux counts the memory of the
one that forks.
"""


def as_many_samples_as_published(_: Place, record: dict[str, Any]) -> dict[str, Any]:
    """60 a side, where the mean of the published cells is 58."""
    for timed in record["regimes"].values():
        timed |= {side: 3 * timed[side] for side in ("variant_us", "reference_us")}
    return record


def make_run(root: Path, cells: int) -> Lab:
    """A project of GEMM sweeps with about so many cells, their plans and records."""
    lab = Lab(root)
    for path in lab.project.sweeps.iterdir():
        path.unlink()
    each = cells // (SWEEP_COUNT * SIZE_COUNT)
    axes = {"strip": axis(*range(each)), "part": axis(*range(SWEEP_COUNT))}
    edit_yaml(
        lab.project.kernels / "gemm_shared_tile.yaml",
        lambda kernel: kernel.update(parameters=axes),
    )
    for part in range(SWEEP_COUNT):
        sweep = GEMMS | {
            "title": f"Many {part}",
            "sizes": [256 * (1 + index) for index in range(SIZE_COUNT)],
            "variants": [
                {
                    "kernel": "gemm_shared_tile",
                    "params": {"strip": [*range(each)], "part": part},
                }
            ],
            "regimes": ["cold"],
            "figures": [{"kind": "curves", "caption": "Speed over the size."}],
        }
        (lab.project.sweeps / f"many{part}.yaml").write_text(json.dumps(sweep))
    lab.record(change=as_many_samples_as_published)
    lab.write_environment()
    for room in ROOMS:
        (root / room).symlink_to(ROOT / room)
    shutil.copy(ROOT / "config/config.yaml", root / "config")
    return lab


def add_devices(lab: Lab, devices: int) -> None:
    """What others have published: this run's tables under other names."""
    for number in range(devices):
        folder = PublishedFolder(lab.project.published(f"nvidia-other-{number}").root)
        folder.root.mkdir(parents=True)
        for suffix in ("csv", "parquet"):
            for path in lab.folder.tables.glob(f"*.{suffix}"):
                shutil.copy(path, folder.tables)
        about = json.loads(lab.folder.environment.read_text())
        folder.environment.write_text(
            json.dumps(about | {"gpu": {"name": f"Other {number}"}})
        )


def cost(lab: Lab, *command: str) -> Cost:
    path = environment() | {"PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run(
        [sys.executable, "-c", _MOST_MEMORY, *command],
        cwd=lab.root,
        env=path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    seconds, kib = done.stdout.splitlines()[-1].split()
    return Cost(float(seconds), int(kib) / 2**20)


def steps(lab: Lab, devices: int) -> dict[str, list[str]]:
    """Commands of a run whose cells are all measured, in their order; the report compares with other devices."""
    folder = str(lab.folder.root)
    names = sorted(lab.sweeps())
    config = ["--config", "device=nvidia-h200", "arch=sm_90a"]
    snakemake = snakemake_command("--cores", "1")
    ladder = [sys.executable, "-m", "ladder"]
    beside = [
        f"--beside=results/published/nvidia-other-{number}" for number in range(devices)
    ]
    return {
        "first parse": [*snakemake, "--list-rules", *config],
        "parse": [*snakemake, "--list-rules", *config],
        "dry run": [*snakemake, "-n", "report", *config],
        "collect": [*ladder, "collect", folder, *names],
        "environment": [*ladder, "environment", folder, "--arch", "sm_90a"],
        "claims": [*ladder, "claims", folder, *names],
        "report": [*ladder, "report", folder, *names, *beside],
        "figures": [*ladder, "figures", folder, *names],
    }


def costs(
    lab: Lab, devices: int, chosen: Sequence[str] = ()
) -> Iterator[tuple[str, Cost]]:
    """Of the steps of a run, or those chosen."""
    for name, command in steps(lab, devices).items():
        if name == "report":
            add_devices(lab, devices)
        if not chosen or name in chosen:
            yield name, cost(lab, *command)


if __name__ == "__main__":
    cells, devices = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as root:
        begun = time.monotonic()
        lab = make_run(Path(root) / "project", cells)
        print(f"made in {time.monotonic() - begun:.0f} s", flush=True)
        for step, used in costs(lab, devices):
            print(f"{step}: {used.seconds:.1f} s, {used.gib:.2f} GiB", flush=True)
