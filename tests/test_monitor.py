"""Clocks, neighbours and locked clocks, on a management library that the test plays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu import monitor
from ladder.gpu.monitor import Monitor
from ladder.model.errors import LadderError

IDLE, POWER_CAP, THERMAL = 1, 4, 64


class NvmlError(Exception):
    pass


class Nvml:
    """The driver's management library as far as the monitor uses it."""

    NvmlError = NvmlError
    ClockType = SimpleNamespace(CLOCK_SM=1)
    TemperatureSensors = SimpleNamespace(TEMPERATURE_GPU=0)
    ClocksEventReasons = [
        SimpleNamespace(name=name, value=value) for name, value in (("NONE", 0), ("POWER", 4), ("HEAT", 64))
    ]

    def __init__(self) -> None:
        self.locked: list[Any] = []
        self.refuses = False
        self.events, self.clock, self.pids = 0, 1980, [7]

    def init_v2(self) -> None: ...

    def shutdown(self) -> None: ...

    def device_get_handle_by_uuid(self, uuid: str) -> str:
        return f"handle of {uuid}"

    def device_get_clock_info(self, handle: str, kind: int) -> int:
        return self.clock

    def device_get_power_usage(self, handle: str) -> int:
        return 512_000

    def device_get_temperature_v(self, handle: str, sensor: int) -> int:
        return 45

    def device_get_current_clocks_event_reasons(self, handle: str) -> int:
        return self.events

    def device_get_compute_running_processes_v3(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def device_set_gpu_locked_clocks(self, handle: str, low: int, high: int) -> None:
        if self.refuses:
            raise NvmlError("Insufficient Permissions")
        self.locked.append((handle, low, high))

    def device_reset_gpu_locked_clocks(self, handle: str) -> None:
        self.locked.append((handle, "reset"))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    played = Nvml()
    monkeypatch.setattr(monitor, "nvml", played)
    return played


def test_clocks_are_locked_for_as_long_as_it_measures(nvml: Nvml) -> None:
    with Monitor("GPU-1").locked_clocks(1400):
        assert nvml.locked == [("handle of GPU-1", 1400, 1400)]
    assert nvml.locked[1:] == [("handle of GPU-1", "reset")]


def test_clocks_are_given_back_when_measuring_fails(nvml: Nvml) -> None:
    with pytest.raises(RuntimeError), Monitor("GPU-1").locked_clocks(1400):
        raise RuntimeError("the worker does not start")
    assert nvml.locked[-1] == ("handle of GPU-1", "reset")


def test_without_a_clock_to_lock_they_are_left_alone(nvml: Nvml) -> None:
    with Monitor("GPU-1").locked_clocks(None):
        pass
    assert nvml.locked == []


def test_a_driver_that_refuses_is_told_with_the_field(nvml: Nvml) -> None:
    nvml.refuses = True
    told = r"measure\.lock_clocks: 1400 MHz was refused by the driver: Insufficient Permissions"
    with pytest.raises(LadderError, match=told), Monitor("GPU-1").locked_clocks(1400):
        raise AssertionError("nothing may be measured")
    assert nvml.locked == []


def test_a_reading_is_the_median_since_a_moment_and_what_held_clocks_down(nvml: Nvml) -> None:
    watch = Monitor("GPU-1")
    first = watch.since(0.0)
    assert (first["sm_clock_mhz"], first["power_w"], first["temperature_c"]) == (1980, 512.0, 45)
    assert first["start_clock_mhz"] == 1980
    nvml.clock, nvml.events = 1700, POWER_CAP | THERMAL | IDLE
    later = watch.since(0.0)
    assert (later["sm_clock_mhz"], later["start_clock_mhz"]) == (1700, 1980), "the session's own first clock"
    assert later["clock_events"] == ["POWER", "HEAT"]


def test_own_processes_are_no_neighbours(nvml: Nvml) -> None:
    nvml.pids = [7, 8]
    assert Monitor("GPU-1").neighbours({8}) == [7]
    assert Monitor("GPU-1").neighbours_that_stay(0.0) == [7, 8]
