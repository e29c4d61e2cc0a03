"""One physical GPU as its management library describes it, and the arithmetic peaks that follow."""

import contextlib
from collections.abc import Callable
from typing import Any

from cuda.bindings import nvml

_FP32_OPS = {75: 128, 80: 128, 86: 256, 87: 256, 89: 256, 90: 256, 100: 256, 103: 256, 120: 256}
_TENSOR_OPS = {
    80: {"fp16": 2048, "bf16": 2048, "tf32": 1024, "fp16_acc16": 2048},
    90: {"fp16": 4096, "bf16": 4096, "tf32": 2048, "fp8": 8192, "fp16_acc16": 4096},
}
"""Dense operations (a multiply-add counts as two) per SM and cycle, from NVIDIA's architecture white papers."""


def theoretical_peaks(number: int, sms: int, clock_mhz: float) -> tuple[float | None, dict[str, float]]:
    """(TFLOP/s of fp32 on CUDA cores, of the tensor cores by dtype) of an architecture such as 90, where known."""
    cycles = sms * clock_mhz * 1e6
    fp32, tensor = _FP32_OPS.get(number), _TENSOR_OPS.get(number, {})
    peaks = {dtype: ops * cycles / 1e12 for dtype, ops in tensor.items()}
    return fp32 * cycles / 1e12 if fp32 else None, peaks


def card_facts(uuid: str) -> dict[str, Any]:
    """Memory, clocks, power limit, ECC, MIG and VBIOS of a GPU, and how many its host has, as far as NVML says."""
    nvml.init_v2()
    handle = nvml.device_get_handle_by_uuid(uuid)
    questions: dict[str, Callable[[], Any]] = {
        "memory_bytes": lambda: int(nvml.device_get_memory_info_v2(handle).total),
        "sm_clock_max_mhz": lambda: nvml.device_get_max_clock_info(handle, nvml.ClockType.CLOCK_SM),
        "memory_clock_max_mhz": lambda: nvml.device_get_max_clock_info(handle, nvml.ClockType.CLOCK_MEM),
        "power_limit_w": lambda: nvml.device_get_enforced_power_limit(handle) / 1000,
        "ecc": lambda: bool(nvml.device_get_ecc_mode(handle)[0]),
        "mig": lambda: bool(nvml.device_get_mig_mode(handle)[0]),
        "vbios": lambda: str(nvml.device_get_vbios_version(handle)),
        "gpus_of_host": lambda: int(nvml.device_get_count_v2()),
    }
    facts: dict[str, Any] = {"uuid": uuid}
    for name, answer in questions.items():
        with contextlib.suppress(nvml.NvmlError, AttributeError, TypeError):
            facts[name] = answer()
    return facts
