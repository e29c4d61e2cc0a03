"""What an architecture offers a kernel, and at what rates: the one table of limits that depend on the GPU.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; for 8.8, 11.0 and 12.1 the
toolkit's cuda_occupancy.h and CCCL's cuda/__device/arch_traits.h; PTX ISA, target notes; NVIDIA's white papers of
GA100, GA102, AD102, GH100 and of the RTX Blackwell GPUs; Hopper Tuning Guide (clusters of 16). A fact that these do not
give is absent.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_KIB = 1024


@dataclass(frozen=True)
class Architecture:
    """Limits of an SM, of a block and of a cluster; what only some architectures have; rates.

    The system takes the bytes by which an SM's shared memory exceeds a block's from each block. `cluster` is the number
    of blocks that a cluster may have, 0 without clusters; above 8 a GPU may have no room. `features` are those of code
    for the very architecture (sm_90a). Rates are dense operations per SM and cycle, a multiply-add being two: of the
    CUDA cores in fp32, and of the tensor cores by dtype, which sum in fp32 where the name does not say fp16 (acc16);
    fp8_fp32 has its result in fp32 too.
    `slow_fp32_sums`: on GeForce GPUs those sums take twice the time.
    """

    warps: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    cluster: int
    features: tuple[str, ...]
    fp32_ops: int
    tensor_ops: Mapping[str, int] = field(default_factory=dict)
    slow_fp32_sums: bool = False
    registers: int = 65536


_OF_ONE = ("wgmma", "tcgen05")
"""Features of code for the very architecture: what names it without the `a` has none of them."""
_COPIES, _FP8, _TMA = ("cp.async",), ("cp.async", "fp8"), ("cp.async", "fp8", "TMA")
_GA102 = {"fp16": 1024, "bf16": 1024, "tf32": 512, "fp16_acc16": 1024}
_GA100 = {name: 2 * ops for name, ops in _GA102.items()}
_AD102 = {**_GA102, "fp8": 2048, "fp8_fp32": 2048}
_GH100 = {name: 4 * ops for name, ops in _AD102.items()}
_BLACKWELL = Architecture(64, 32, 228 * _KIB, 227 * _KIB, 8, (*_TMA, "tcgen05"), 256)
_RTX_BLACKWELL = Architecture(48, 24, 100 * _KIB, 99 * _KIB, 8, _TMA, 256)

ARCHITECTURES: Mapping[int, Architecture] = {  # 90 for sm_90 and sm_90a
    75: Architecture(32, 16, 64 * _KIB, 64 * _KIB, 0, (), 128),
    80: Architecture(64, 32, 164 * _KIB, 163 * _KIB, 0, _COPIES, 128, _GA100),
    86: Architecture(
        48, 16, 100 * _KIB, 99 * _KIB, 0, _COPIES, 256, _GA102, slow_fp32_sums=True
    ),
    87: Architecture(48, 16, 164 * _KIB, 163 * _KIB, 0, _COPIES, 256),
    88: Architecture(48, 16, 100 * _KIB, 99 * _KIB, 0, _COPIES, 256),
    89: Architecture(
        48, 24, 100 * _KIB, 99 * _KIB, 0, _FP8, 256, _AD102, slow_fp32_sums=True
    ),
    90: Architecture(64, 32, 228 * _KIB, 227 * _KIB, 16, (*_TMA, "wgmma"), 256, _GH100),
    100: _BLACKWELL,
    103: _BLACKWELL,
    110: replace(_BLACKWELL, warps=48, blocks=24),
    120: replace(_RTX_BLACKWELL, tensor_ops=_AD102, slow_fp32_sums=True),
    121: _RTX_BLACKWELL,
}
TUNED_FOR = "sm_90a"
"""What kernels are tuned for, and compiled for where no device says otherwise."""
MOST_SHARED_BYTES = max(one.block_shared_bytes for one in ARCHITECTURES.values())
"""Shared memory of a block at most, on the architecture that has most."""
MOST_CLUSTER = max(one.cluster for one in ARCHITECTURES.values())

_FULL_RATE = re.compile(r"\b(RTX|A10|A40|L4|L40S?)\b")


def arch_number(arch: str) -> int:
    """90 for sm_90 and sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("a"))


def limits_of(arch: str) -> Architecture | None:
    """What is known of an architecture such as sm_90a."""
    return ARCHITECTURES.get(arch_number(arch))


def lacking(least: str, arch: str) -> str | None:
    """Why code that needs `least` cannot run on `arch`, with the features that are missing; None where it can."""
    # Code for sm_90a runs on sm_90a alone.
    if arch == least or not (
        least.endswith("a") or arch_number(arch) < arch_number(least)
    ):
        return None
    known, there = limits_of(least), limits_of(arch)
    asked = known.features if known else ()
    if not least.endswith("a"):
        asked = tuple(name for name in asked if name not in _OF_ONE)
    missing = [name for name in asked if name not in there.features] if there else []
    return f"needs {least}, the device is {arch}{', without ' if missing else ''}{', '.join(missing)}"


def peaks(
    number: int, gpu: str, sms: int, clock_mhz: float
) -> tuple[float | None, dict[str, float]]:
    """(TFLOP/s of fp32 on CUDA cores, of the tensor cores by dtype) of a GPU by its name, where they are known."""
    limits, cycles = ARCHITECTURES.get(number), sms * clock_mhz * 1e6
    if limits is None or not cycles:
        return None, {}
    tensor = dict(limits.tensor_ops)
    if limits.slow_fp32_sums and "GeForce" in gpu:
        tensor = {
            dtype: ops // (1 if "acc16" in dtype else 2)
            for dtype, ops in tensor.items()
        }
    elif limits.slow_fp32_sums and not _FULL_RATE.search(
        gpu
    ):  # some run at half the rate as well
        tensor = {}
    return limits.fp32_ops * cycles / 1e12, {
        dtype: ops * cycles / 1e12 for dtype, ops in tensor.items()
    }
