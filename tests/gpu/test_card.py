"""What is known of a card, on a management library that answers only some queries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu.card import card_facts


class NvmlError(Exception):
    pass


ANSWERS = {
    "init_v2": None,
    "device_get_handle_by_uuid": 1,
    "device_get_memory_info_v2": SimpleNamespace(total=150_000_000_000),
    "device_get_max_clock_info": 3201,
    "device_get_memory_bus_width": 6144,
    "device_get_enforced_power_limit": 700_000,
    "device_get_ecc_mode": (1, 1),
    "device_get_mig_mode": (0, 0),
    "device_get_vbios_version": "96.00",
    "device_get_count_v2": 8,
}


class Nvml:
    """The driver's management library as far as it describes a card; the queries in `missing` are not supported."""

    NvmlError = NvmlError
    ClockType = SimpleNamespace(CLOCK_SM=1, CLOCK_MEM=2)

    def __init__(self, missing: str = "", **answers: Any) -> None:
        self.missing, self.answers = missing, ANSWERS | answers

    def __getattr__(self, name: str) -> Any:
        def query(*_: Any) -> Any:
            if name == self.missing:
                raise NvmlError("Not Supported")
            return self.answers[name]

        return query


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
    monkeypatch.setattr("cuda.bindings.nvml", Nvml(device_get_max_clock_info=0))
    assert not {"memory_clock_max_mhz", "memory_peak_gbytes_per_s"} & {
        *card_facts("GPU-1")
    }
