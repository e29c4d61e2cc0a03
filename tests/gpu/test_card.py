"""What is known of a card, on a management library that answers only some queries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu.card import card_facts


class NvmlError(Exception):
    pass


class Nvml:
    """The driver's management library as far as it describes a card; the queries in `missing` are not supported."""

    NvmlError = NvmlError
    ClockType = SimpleNamespace(CLOCK_SM=1, CLOCK_MEM=2)

    def __init__(self, missing: str = "", memory_mhz: int = 3201) -> None:
        self.missing, self.memory_mhz = missing, memory_mhz

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("device_") and name == super().__getattribute__("missing"):
            raise NvmlError("Not Supported")
        return super().__getattribute__(name)

    def init_v2(self) -> None: ...

    def device_get_handle_by_uuid(self, uuid: str) -> int:
        return 1

    def device_get_memory_info_v2(self, handle: int) -> Any:
        return SimpleNamespace(total=150_000_000_000)

    def device_get_max_clock_info(self, handle: int, kind: int) -> int:
        return self.memory_mhz

    def device_get_memory_bus_width(self, handle: int) -> int:
        return 6144

    def device_get_enforced_power_limit(self, handle: int) -> int:
        return 700_000

    def device_get_ecc_mode(self, handle: int) -> tuple[int, int]:
        return 1, 1

    def device_get_mig_mode(self, handle: int) -> tuple[int, int]:
        return 0, 0

    def device_get_vbios_version(self, handle: int) -> str:
        return "96.00"

    def device_get_count_v2(self) -> int:
        return 8


FACTS = {
    "uuid": "GPU-1",
    "memory_bytes": 150_000_000_000,
    "memory_clock_max_mhz": 3201,
    "memory_peak_gbytes_per_s": 3201 * 6144 / 4e3,
    "power_limit_w": 700.0,
    "ecc": True,
    "mig": False,
    "vbios": "96.00",
    "gpus_of_host": 8,
}
LOST = {
    "device_get_memory_info_v2": ("memory_bytes",),
    "device_get_max_clock_info": ("memory_clock_max_mhz", "memory_peak_gbytes_per_s"),
    "device_get_memory_bus_width": ("memory_peak_gbytes_per_s",),
    "device_get_enforced_power_limit": ("power_limit_w",),
    "device_get_ecc_mode": ("ecc",),
    "device_get_mig_mode": ("mig",),
    "device_get_vbios_version": ("vbios",),
    "device_get_count_v2": ("gpus_of_host",),
}


@pytest.mark.parametrize("missing", ["", *LOST])
def test_a_query_that_is_not_supported_costs_its_own_facts(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuda.bindings.nvml", Nvml(missing))
    left_out = LOST.get(missing, ())
    assert card_facts("GPU-1") == {
        name: fact for name, fact in FACTS.items() if name not in left_out
    }


def test_integrated_memory_without_a_clock_has_no_peak_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cuda.bindings.nvml", Nvml(memory_mhz=0))
    assert not {"memory_clock_max_mhz", "memory_peak_gbytes_per_s"} & {
        *card_facts("GPU-1")
    }
