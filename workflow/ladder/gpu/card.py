"""One physical GPU as its management library describes it."""

import contextlib
from collections.abc import Callable
from typing import Any


def card_facts(uuid: str) -> dict[str, Any]:
    """Memory, its clock, power limit, ECC, MIG and VBIOS of a GPU, and how many its host has, as far as NVML says.

    The memory's peak rate is in GB/s, at two transfers a clock, as all memory of GPUs has it. Integrated memory has no
    clock of its own, and no rate.
    """
    # Those who only read what was measured do without.
    from cuda.bindings import nvml

    nvml.init_v2()
    handle = nvml.device_get_handle_by_uuid(uuid)

    def memory_mhz() -> Any:
        return nvml.device_get_max_clock_info(handle, nvml.ClockType.CLOCK_MEM) or None

    questions: dict[str, Callable[[], Any]] = {
        "memory_bytes": lambda: int(nvml.device_get_memory_info_v2(handle).total),
        "memory_clock_max_mhz": memory_mhz,
        "memory_peak_gbytes_per_s": lambda: (
            memory_mhz() * nvml.device_get_memory_bus_width(handle) / 4e3
        ),
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
    return {name: fact for name, fact in facts.items() if fact is not None}
