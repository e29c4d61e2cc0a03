"""What a run was made on and with: GPU, driver, libraries, packages, host, and the digest of the tree."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ladder.digest import TREE_ROOMS, tree_digest

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

_FP32_OPS = {75: 128, 80: 128, 86: 256, 87: 256, 89: 256, 90: 256, 100: 256, 103: 256, 120: 256}
_TENSOR_OPS = {
    80: {"fp16": 2048, "bf16": 2048, "tf32": 1024},
    90: {"fp16": 4096, "bf16": 4096, "tf32": 2048, "fp8": 8192},
}
"""Dense operations (a multiply-add counts as two) per SM and cycle, from NVIDIA's architecture white papers."""


def package_version(name: str) -> str | None:
    """Version of an installed package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def driver_version() -> str | None:
    """Version of the kernel-mode driver, or None without one."""
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        return str(nvml.system_get_driver_version())
    except Exception:
        return None


def measuring_host(gpu_name: str) -> dict[str, str]:
    """What the numbers of a cell depend on besides its cubin and plan: GPU model, driver, cuBLAS."""
    return {
        "gpu": gpu_name,
        "driver": driver_version() or "unknown",
        "cublas": package_version("nvidia-cublas") or "system",
    }


def tree(root: Path) -> dict[str, Any]:
    """Digest of kernels/, workflow/ and config/, and where git is there the commit and whether they are clean."""
    found: dict[str, Any] = {"digest": tree_digest(root), "commit": None, "clean": None}
    if shutil.which("git") and (root / ".git").exists():
        commit = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
        state = _output(["git", "-C", str(root), "status", "--porcelain", "--", *TREE_ROOMS])
        if commit:
            found |= {"commit": commit.strip(), "clean": state is not None and not state.strip()}
    return found


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


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


def software() -> dict[str, Any]:
    """Versions of NVRTC, cuBLAS, the profiler, Python and the packages that matter."""
    from ladder.compiler import nvrtc_version

    ncu = _output(["ncu", "--version"])
    return {
        "nvrtc": nvrtc_version(),
        "cublas": package_version("nvidia-cublas"),
        "ncu": ncu.strip().splitlines()[-1] if ncu else None,
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def theoretical_peaks(
    capability: tuple[int, int], sms: int, clock_mhz: float
) -> tuple[float | None, dict[str, float]]:
    """(TFLOP/s of fp32 on CUDA cores, of the tensor cores by dtype) at a clock; empty where not known."""
    number = 10 * capability[0] + capability[1]
    cycles = sms * clock_mhz * 1e6
    fp32 = _FP32_OPS.get(number)
    tensor = {dtype: ops * cycles / 1e12 for dtype, ops in _TENSOR_OPS.get(number, {}).items()}
    if "fp16" in tensor:
        tensor["fp16_acc16"] = tensor["fp16"]
    return (fp32 * cycles / 1e12 if fp32 else None), tensor


_COPY_BYTES = 2**31


def gpu_facts(harness: Path) -> dict[str, Any]:
    """Facts of the first visible GPU, its copy rate measured. Needs a GPU."""
    from cuda.bindings import nvml

    from ladder.device import Gpu
    from ladder.timing import quick_time

    nvml.init_v2()
    gpu = Gpu(harness)
    uuid = f"GPU-{gpu.device.uuid}".replace("GPU-GPU-", "GPU-")
    handle = nvml.device_get_handle_by_uuid(uuid)
    clock = nvml.device_get_max_clock_info(handle, nvml.ClockType.CLOCK_SM)
    size = min(_COPY_BYTES, gpu.free_bytes() // 4)
    source, target = gpu.allocate(size), gpu.allocate(size)
    gpu.fill_words(int(source.handle), size, 0x5BD1E995)

    def copy() -> None:
        gpu.copy(int(target.handle), int(source.handle), size)

    copy_us = quick_time(gpu, copy)
    fp32, tensor = theoretical_peaks(gpu.compute_capability, gpu.sms, clock)
    return {
        "name": gpu.device.name,
        "uuid": uuid,
        "compute_capability": ".".join(str(part) for part in gpu.compute_capability),
        "sms": gpu.sms,
        "memory_bytes": int(nvml.device_get_memory_info_v2(handle).total),
        "l2_bytes": gpu.l2_bytes,
        "sm_clock_max_mhz": clock,
        "memory_clock_max_mhz": nvml.device_get_max_clock_info(handle, nvml.ClockType.CLOCK_MEM),
        "power_limit_w": nvml.device_get_enforced_power_limit(handle) / 1000,
        "fp32_peak_tflops": fp32,
        "tensor_peak_tflops": tensor,
        "copy_gbytes_per_s": 2 * size / copy_us / 1e3,
    }
