"""What NVML says of a GPU, on a management library that the test plays: clocks, neighbours, and the card."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu import monitor
from ladder.gpu.card import card_facts
from ladder.gpu.monitor import Monitor

IDLE, POWER_CAP, THERMAL = 1, 4, 64
ENERGY = "device_get_total_energy_consumption"
EVENTS = "device_get_current_clocks_event_reasons"
PROCESSES = "device_get_compute_running_processes_v3"
ANSWERS = {
    "init_v2": None,
    "device_get_handle_by_uuid": 1,
    "device_get_clock_info": 1980,
    ENERGY: 0,
    "device_get_temperature_v": 45,
    EVENTS: 0,
    PROCESSES: [SimpleNamespace(pid=7)],
    "device_get_memory_info_v2": SimpleNamespace(total=150_000_000_000),
    "device_get_max_clock_info": 3201,
    "device_get_memory_bus_width": 6144,
    "device_get_enforced_power_limit": 700_000,
    "device_get_ecc_mode": (1, 1),
    "device_get_mig_mode": (0, 0),
    "device_get_vbios_version": "96.00",
    "device_get_count_v2": 8,
}


class NvmlError(Exception):
    pass


class Nvml:
    """The driver's management library: queries without an answer are not supported."""

    NvmlError = NvmlError
    ClockType = SimpleNamespace(CLOCK_SM=1, CLOCK_MEM=2)
    TemperatureSensors = SimpleNamespace(TEMPERATURE_GPU=0)
    ClocksEventReasons = [
        SimpleNamespace(name=name, value=value)
        for name, value in (("NONE", 0), ("POWER", 4), ("HEAT", 64))
    ]

    def __init__(self) -> None:
        self.answers: dict[str, Any] = dict(ANSWERS)

    def __getattr__(self, name: str) -> Any:
        def query(*_: Any) -> Any:
            if name not in self.answers:
                raise NvmlError("Not Supported")
            return self.answers[name]

        return query


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    played = Nvml()
    monkeypatch.setattr(monitor, "nvml", played)
    monkeypatch.setattr("cuda.bindings.nvml", played)
    return played


def test_a_reading_is_the_median_since_a_moment_and_what_held_clocks_down(
    nvml: Nvml,
) -> None:
    watch = Monitor("GPU-1")
    first = watch.since(0.0)
    assert (first["sm_clock_mhz"], first["power_w"], first["temperature_c"]) == (
        1980,
        None,
        45,
    )
    nvml.answers |= {"device_get_clock_info": 1700, EVENTS: POWER_CAP | THERMAL | IDLE}
    later = watch.since(0.0)
    assert later["sm_clock_mhz"] == 1700
    assert later["clock_events"] == ["POWER", "HEAT"]


QUERIES = {
    "sm_clock_mhz": "device_get_clock_info",
    "temperature_c": "device_get_temperature_v",
    "clock_events": EVENTS,
    "power_w": ENERGY,
}


@pytest.mark.parametrize("missing", QUERIES)
def test_a_query_that_is_not_supported_leaves_its_own_value_missing_and_ends_nothing(
    missing: str, nvml: Nvml
) -> None:
    nvml.answers[EVENTS] = POWER_CAP
    del nvml.answers[QUERIES[missing]]
    watch = Monitor("GPU-1")
    now = time.monotonic()
    read_for(watch, nvml, now, 1.3, 700.0)
    power_w = watch.power_w([(now, now + 1.3)])
    expected = {
        "sm_clock_mhz": 1980,
        "temperature_c": 45,
        "clock_events": ["POWER"],
        "power_w": pytest.approx(700.0, rel=0.01),
    }
    found = {**watch.since(now - 1), "power_w": power_w}
    assert found == {**expected, missing: None}


def test_a_gpu_of_which_nothing_is_known_is_read_and_has_no_neighbours(
    nvml: Nvml,
) -> None:
    for query in (*QUERIES.values(), PROCESSES):
        del nvml.answers[query]
    watch = Monitor("GPU-1")
    assert {*watch.since(0.0).values()} == {None}
    assert watch.neighbours(set()) == []


def test_own_processes_are_no_neighbours(nvml: Nvml) -> None:
    nvml.answers[PROCESSES] = [SimpleNamespace(pid=pid) for pid in (7, 8)]
    assert Monitor("GPU-1").neighbours({8}) == [7]
    assert Monitor("GPU-1").neighbours_that_stay(0.0) == [7, 8]


def read_for(
    watch: Monitor, nvml: Nvml, begin: float, seconds: float, watts: float
) -> None:
    """Readings every 20 ms, on a counter that ticks every 100 ms."""
    before_mj = nvml.answers.get(ENERGY)
    for step in range(int(seconds * 50)):
        if before_mj is not None:
            ticked_mj = int(watts * 1000 * (step // 5) * 0.1)
            nvml.answers[ENERGY] = before_mj + ticked_mj
        watch._readings.append(watch.read()._replace(time_s=begin + step * 0.02))


def test_power_is_energy_from_tick_to_tick_within_windows(nvml: Nvml) -> None:
    watch = Monitor("GPU-1")
    read_for(watch, nvml, 100.0, 1.3, 700.0)
    read_for(watch, nvml, 101.3, 1.3, 300.0)
    assert watch.power_w([(100.0, 101.3)]) == pytest.approx(700.0, rel=0.01)
    assert watch.power_w([(101.4, 102.6)]) == pytest.approx(300.0, rel=0.01)
    assert watch.power_w([(100.0, 101.2), (101.4, 102.6)]) == pytest.approx(
        500.0, rel=0.03
    )
    assert watch.power_w([(100.0, 100.35)]) is None, "too few ticks to tell"
    assert watch.power_w([]) is None


# The card.

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
    missing: str, nvml: Nvml
) -> None:
    nvml.answers.pop(missing, None)
    left_out = LOST.get(missing, ())
    assert card_facts("GPU-1") == {
        name: fact for name, fact in FACTS.items() if name not in left_out
    }


def test_integrated_memory_without_a_clock_has_no_peak_rate(
    nvml: Nvml,
) -> None:
    nvml.answers["device_get_max_clock_info"] = 0
    assert not {"memory_clock_max_mhz", "memory_peak_gbytes_per_s"} & {
        *card_facts("GPU-1")
    }
