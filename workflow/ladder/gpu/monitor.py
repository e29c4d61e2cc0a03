"""Clocks, power, temperature and neighbours of one GPU through NVML, read beside the measurement, not within it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from cuda.bindings import nvml

from ladder.model.errors import LadderError

_INTERVAL_S = 0.02


@dataclass(frozen=True)
class Reading:
    """One reading; `at` is time.monotonic seconds, `events` NVML's bit mask of what holds clocks down."""

    at: float
    sm_clock_mhz: int
    power_w: float
    temperature_c: int
    events: int


_IDLE = 1
_HARMLESS = _IDLE | 2 | 16 | 256  # idle, application clocks, sync boost, display clock


class Monitor:
    """Reads one GPU every 20 ms in a thread of the supervisor, which has no CUDA and so disturbs no launch."""

    def __init__(self, uuid: str) -> None:
        nvml.init_v2()
        self._handle = nvml.device_get_handle_by_uuid(uuid)
        self._readings: list[Reading] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.start_clock_mhz: float | None = None

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        nvml.shutdown()

    def read(self) -> Reading:
        """One reading, now."""
        return Reading(
            time.monotonic(),
            nvml.device_get_clock_info(self._handle, nvml.ClockType.CLOCK_SM),
            nvml.device_get_power_usage(self._handle) / 1000,
            nvml.device_get_temperature_v(self._handle, nvml.TemperatureSensors.TEMPERATURE_GPU),
            nvml.device_get_current_clocks_event_reasons(self._handle),
        )

    def _watch(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(nvml.NvmlError):
                self._readings.append(self.read())
            self._stop.wait(_INTERVAL_S)

    def since(self, start: float) -> dict[str, Any]:
        """Medians over the readings since `start` (time.monotonic), and the clock that this GPU began with.

        That is the highest of the first cell that is asked about. Older readings are dropped.
        """
        self._readings = [reading for reading in self._readings if reading.at >= start]
        readings = [reading for reading in self._readings if not reading.events & _IDLE] or [self.read()]
        clock = median(reading.sm_clock_mhz for reading in readings)
        if self.start_clock_mhz is None:
            self.start_clock_mhz = max(reading.sm_clock_mhz for reading in readings)
        events = 0
        for reading in readings:
            events |= reading.events & ~_HARMLESS
        return {
            "sm_clock_mhz": clock,
            "power_w": round(median(reading.power_w for reading in readings), 1),
            "temperature_c": median(reading.temperature_c for reading in readings),
            "start_clock_mhz": self.start_clock_mhz,
            "clock_events": [
                reason.name for reason in nvml.ClocksEventReasons if reason.value and events & reason.value
            ],
        }

    def neighbours(self, own: set[int]) -> list[int]:
        """Process ids that use the GPU for computing, other than `own`."""
        try:
            running = nvml.device_get_compute_running_processes_v3(self._handle)
        except nvml.NvmlError:
            return []
        pids = [int(running[index].pid) for index in range(len(running))]
        return [pid for pid in pids if pid not in own and pid != os.getpid()]

    def neighbours_that_stay(self, seconds: float) -> list[int]:
        """Process ids that still use the GPU after `seconds`; returns as soon as there are none."""
        until = time.monotonic() + seconds
        while (found := self.neighbours(set())) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    @contextlib.contextmanager
    def locked_clocks(self, mhz: float | None) -> Iterator[None]:
        """Hold the SM clock at `mhz` and give it back afterwards; None leaves it alone.

        Raises LadderError where the driver refuses.
        """
        if mhz is None:
            yield
            return
        try:
            nvml.device_set_gpu_locked_clocks(self._handle, int(mhz), int(mhz))
        except nvml.NvmlError as error:
            raise LadderError(f"measure.lock_clocks: {mhz} MHz was refused by the driver: {error}") from error
        try:
            yield
        finally:
            nvml.device_reset_gpu_locked_clocks(self._handle)
