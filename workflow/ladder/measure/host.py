"""What a session is made on and with: the host, its software, the checkout, and the GPU."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ladder.gpu.card import card_facts, driver_version, theoretical_peaks
from ladder.measure.conditions import package_version
from ladder.measure.store import new_name
from ladder.model.files import TREE_ROOMS, tree_digest
from ladder.model.record import Session

PACKAGES = (
    "snakemake",
    "cuda-python",
    "cuda-core",
    "cuda-bindings",
    "nvmath-python",
    "nvidia-cublas",
    "nvidia-cuda-nvrtc",
    "cuda-bench",
    "ncu-report",
    "numpy",
    "scipy",
    "pandas",
    "seaborn",
    "matplotlib",
)


def now() -> str:
    """UTC time, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def output(command: list[str]) -> str | None:
    """What a command prints; None where it fails or there is no such command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def tree(root: Path) -> dict[str, Any]:
    """Digest of kernels/, workflow/ and config/, and where git is there the commit and whether they are clean."""
    found: dict[str, Any] = {"digest": tree_digest(root), "commit": None, "clean": None}
    if shutil.which("git") and (root / ".git").exists():
        commit = output(["git", "-C", str(root), "rev-parse", "HEAD"])
        state = output(["git", "-C", str(root), "status", "--porcelain", "--", *TREE_ROOMS])
        if commit:
            found |= {"commit": commit.strip(), "clean": state is not None and not state.strip()}
    return found


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def host() -> dict[str, Any]:
    """CPU, usable cores and memory of this host."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {"cpu": _cpu_name(), "cores": len(os.sched_getaffinity(0)), "memory_bytes": pages * page}


def find_ncu() -> str | None:
    """Nsight Compute's command line, on the path or where the toolkit puts it; None without it."""
    places = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ncu"]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    return shutil.which("ncu") or next((str(path) for path in places if path.is_file()), None)


def ncu_version() -> str | None:
    """Version of Nsight Compute, or None without it."""
    ncu = find_ncu()
    text = output([ncu, "--version"]) if ncu else None
    return text.strip().splitlines()[-1] if text else None


def versions() -> dict[str, Any]:
    """Versions of driver, cuBLAS, Python and the packages that matter."""
    return {
        "driver": driver_version(),
        "cublas": package_version("nvidia-cublas"),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def session(uuid: str, root: Path, gpu: Mapping[str, Any]) -> Session:
    """The session that a worker begins on the GPU `uuid`; `gpu` is what the worker says of it."""
    card = card_facts(uuid)
    facts = {name: value for name, value in gpu.items() if name != "clock_floor_us"}
    capability = tuple(int(part) for part in str(gpu["compute_capability"]).split("."))
    clock = card.get("sm_clock_max_mhz", 0)
    fp32, tensor = theoretical_peaks((capability[0], capability[1]), gpu.get("sms", 0), clock)
    count = {"gpus": card.pop("gpus_of_host", None)}
    return Session(
        id=new_name("session"),
        started=now(),
        gpu={**facts, **card, "fp32_peak_tflops": fp32, "tensor_peak_tflops": tensor},
        host={**host(), **count},
        versions=versions(),
        tree=tree(root),
        clock_floor_us=gpu.get("clock_floor_us"),
    )
