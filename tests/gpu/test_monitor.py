"""Clocks and neighbours, on a management library that the test plays."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu import monitor
from ladder.gpu.monitor import Monitor

IDLE, POWER_CAP, THERMAL = 1, 4, 64


class NvmlError(Exception):
    pass


class Nvml:
    """The driver's management library as far as the monitor uses it."""

    NvmlError = NvmlError
    ClockType = SimpleNamespace(CLOCK_SM=1)
    TemperatureSensors = SimpleNamespace(TEMPERATURE_GPU=0)
    ClocksEventReasons = [
        SimpleNamespace(name=name, value=value)
        for name, value in (("NONE", 0), ("POWER", 4), ("HEAT", 64))
    ]

    def __init__(self) -> None:
        self.events, self.clock, self.pids = 0, 1980, [7]
        self.energy_mj = 0
        self.init_v2 = self.shutdown = lambda: None
        self.device_get_handle_by_uuid = str
        self.device_get_clock_info = lambda *_: self.clock
        self.device_get_total_energy_consumption = lambda _: self.energy_mj
        self.device_get_temperature_v = lambda *_: 45
        self.device_get_current_clocks_event_reasons = lambda _: self.events
        self.device_get_compute_running_processes_v3 = lambda _: [
            SimpleNamespace(pid=pid) for pid in self.pids
        ]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    played = Nvml()
    monkeypatch.setattr(monitor, "nvml", played)
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
    nvml.clock, nvml.events = 1700, POWER_CAP | THERMAL | IDLE
    later = watch.since(0.0)
    assert later["sm_clock_mhz"] == 1700
    assert later["clock_events"] == ["POWER", "HEAT"]


QUERIES = {
    "sm_clock_mhz": "device_get_clock_info",
    "temperature_c": "device_get_temperature_v",
    "clock_events": "device_get_current_clocks_event_reasons",
    "power_w": "device_get_total_energy_consumption",
}


def not_supported(*_: Any) -> Any:
    raise NvmlError("Not Supported")


@pytest.mark.parametrize("missing", [*QUERIES])
def test_a_query_that_is_not_supported_leaves_its_own_value_missing_and_ends_nothing(
    missing: str, nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, QUERIES[missing], not_supported)
    nvml.events = POWER_CAP
    watch = Monitor("GPU-1")
    now = time.monotonic()
    read_for(watch, nvml, now, 1.3, 700.0)
    found = watch.since(now - 1)
    assert found.pop(missing) is None
    expected = {"sm_clock_mhz": 1980, "temperature_c": 45, "clock_events": ["POWER"]}
    assert {name: value for name, value in found.items() if name != "power_w"} == {
        name: value for name, value in expected.items() if name != missing
    }
    power_w = None if missing == "power_w" else pytest.approx(700.0, rel=0.01)
    assert watch.power_w([(now, now + 1.3)]) == power_w


def test_a_gpu_of_which_nothing_is_known_is_read_and_has_no_neighbours(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    for query in (*QUERIES.values(), "device_get_compute_running_processes_v3"):
        monkeypatch.setattr(nvml, query, not_supported)
    watch = Monitor("GPU-1")
    assert {*watch.since(0.0).values()} == {None}
    assert watch.neighbours(set()) == []


def test_own_processes_are_no_neighbours(nvml: Nvml) -> None:
    nvml.pids = [7, 8]
    assert Monitor("GPU-1").neighbours({8}) == [7]
    assert Monitor("GPU-1").neighbours_that_stay(0.0) == [7, 8]


def read_for(
    watch: Monitor, nvml: Nvml, begin: float, seconds: float, watts: float
) -> None:
    """Readings every 20 ms, on a counter that ticks every 100 ms."""
    energy = nvml.energy_mj
    for step in range(int(seconds * 50)):
        nvml.energy_mj = energy + int(watts * 1000 * (step // 5) * 0.1)
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
