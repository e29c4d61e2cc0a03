"""How a job runs a program on a GPU: it takes a GPU for itself, and starts `ladder.measure.process` there."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.gpu.discovery import FoundGpu
from ladder.gpu.lock import one_gpu
from ladder.measure.process_lifetime import die_with_parent
from ladder.model.errors import LadderError
from ladder.model.plan import Plan


@dataclass(frozen=True)
class GpuProgram:
    """A program of `ladder.measure.process`, for the GPU that the job holds.

    command: its command line but for the request. lock: the descriptor that keeps the GPU taken, also by what the
    program leaves behind.
    """

    gpu: FoundGpu
    lock: int
    command: list[str]

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables with which a program sees this GPU alone, and finds the modules that this one does."""
        paths = [os.environ.get("PYTHONPATH"), *sys.path]
        return {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": self.gpu.uuid,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }

    def run(
        self, request: Any, under: Sequence[str] = (), **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run it to its end with a request, `under` a tool if one is given; `options` are those of subprocess.run."""
        command = [*under, *self.command, json.dumps(request)]
        return subprocess.run(
            command,
            env=self.environment,
            pass_fds=[self.lock],
            preexec_fn=die_with_parent,
            check=False,
            **options,
        )


@contextlib.contextmanager
def gpu_program(
    name: str, path: Path, plan: Plan, root: Path, gpus: Sequence[FoundGpu]
) -> Iterator[GpuProgram]:
    """Wait for one of the GPUs and hold it: the program of this name for the plan at `path`.

    Raises LadderError without a GPU, or where a cubin of the plan is missing.
    """
    command = process_command(name, path, plan, root)
    with one_gpu(gpus) as (gpu, lock):
        yield GpuProgram(gpu, lock, command)


def process_command(name: str, path: Path, plan: Plan, root: Path) -> list[str]:
    """Command line of a program but for its request. Raises LadderError where a cubin is not in the cache."""
    cubins = root / plan.job["cubins"]
    for compiled, facts in {**plan.harness, **plan.variants}.items():
        if (key := facts.get("cubin")) and not (cubins / f"{key}.cubin").is_file():
            what = "delete this plan and run snakemake again, which compiles what is missing"
            where = f"{path}: the cubin of {compiled} is not in {cubins}"
            raise LadderError(f"{where}; {what}")
    words = ["-P", "-m", "ladder.measure.process", name, str(path), str(cubins)]
    return [sys.executable, *words]
