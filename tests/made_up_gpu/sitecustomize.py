"""Gives measuring jobs a made-up GPU: what Python imports at its start where this folder is on PYTHONPATH.

Each node of a cluster (SLURMD_NODENAME) has those of MADE_UP_GPUS, as "node:count,…"; one has any other host. Their
cells are "measured" by `made_up_worker.py`. Other steps, the workflow itself among them, see nothing of all this.
"""

import os
import sys


def _stand_in() -> None:
    import contextlib
    from pathlib import Path
    from types import SimpleNamespace

    from ladder.gpu import discovery
    from ladder.gpu.discovery import FoundGpu, visible

    reading = {
        "sm_clock_mhz": 1980,
        "power_w": 500.0,
        "temperature_c": 50,
        "clock_events": [],
    }
    monitor = SimpleNamespace(
        neighbours=lambda own: [],
        neighbours_that_stay=lambda seconds: [],
        since=lambda start: dict(reading),
        power_w=lambda windows: None,
    )

    def gpus() -> list[FoundGpu]:
        node = os.environ.get("SLURMD_NODENAME", "here")
        counts = dict(
            one.split(":")
            for one in os.environ.get("MADE_UP_GPUS", "here:1").split(",")
        )
        named = [f"GPU-{node}-{number}" for number in range(int(counts.get(node, 0)))]
        found = [
            FoundGpu(index, "Made-up GPU", uuid, (9, 0))
            for index, uuid in enumerate(named)
        ]
        return visible(found, os.environ)

    def command(name: str, path: Path, plan: object, root: Path) -> list[str]:
        return [
            sys.executable,
            str(Path(__file__).with_name("made_up_worker.py")),
            name,
            str(path),
            "-",
        ]

    # Ahead of whoever imports them.
    discovery.find_gpus = gpus
    discovery.driver_version = lambda: "1.0"
    from ladder.measure import gpu_job, host, job

    job.Monitor = lambda uuid: contextlib.nullcontext(monitor)  # type: ignore[assignment,misc]
    gpu_job.process_command = command  # type: ignore[assignment]
    job.locked_clocks = lambda uuid, mhz: contextlib.nullcontext()  # type: ignore[assignment,misc]
    host.card_facts = lambda uuid: {"uuid": uuid}  # type: ignore[assignment]


if sys.orig_argv[1:4] == ["-m", "ladder", "measure"]:
    _stand_in()
