"""Clocks, power, temperature and neighbours of one GPU through NVML, read beside the measurement, not within it."""

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, Self

from cuda.bindings import nvml

_INTERVAL_S = 0.02
Reading = tuple[float, int, float, int, int]
"""time.monotonic in s, SM clock in MHz, energy in J, temperature in °C, NVML's bit mask of what holds clocks down."""
_LEAST_TICKS = 4
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

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        nvml.shutdown()

    def read(self) -> Reading:
        """One reading, now."""
        return (
            time.monotonic(),
            nvml.device_get_clock_info(self._handle, nvml.ClockType.CLOCK_SM),
            self._energy_j(),
            nvml.device_get_temperature_v(self._handle, nvml.TemperatureSensors.TEMPERATURE_GPU),
            nvml.device_get_current_clocks_event_reasons(self._handle),
        )

    def _energy_j(self) -> float:
        """NaN where the GPU has no such counter."""
        with contextlib.suppress(nvml.NvmlError):
            return float(nvml.device_get_total_energy_consumption(self._handle)) / 1000
        return math.nan

    def _watch(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(nvml.NvmlError):
                self._readings.append(self.read())
            self._stop.wait(_INTERVAL_S)

    def since(self, start: float) -> dict[str, Any]:
        """Medians since `start` (time.monotonic), and the mean power; older readings are dropped."""
        self._readings = [reading for reading in self._readings if reading[0] >= start]
        busy = [reading for reading in self._readings if not reading[-1] & _IDLE] or [self.read()]
        _, clocks, _, temperatures, masks = zip(*busy, strict=True)
        harmful = {mask & ~_HARMLESS for mask in masks}
        events = [one.name for one in nvml.ClocksEventReasons if any(one.value & mask for mask in harmful)]
        found = {"sm_clock_mhz": median(clocks), "power_w": self.power_w([(start, time.monotonic())])}
        return {**found, "temperature_c": median(temperatures), "clock_events": events}

    def power_w(self, windows: Sequence[tuple[float, float]]) -> float | None:
        """Mean power in W over windows of time.monotonic; None where they are too short to tell.

        NVML's energy counter ticks about every 100 ms: from the first tick within a window to the last one.
        """
        joules = seconds = 0.0
        for begin, end in windows:
            within = [reading for reading in self._readings if begin <= reading[0] <= end]
            ticks = [(b[0], b[2]) for a, b in itertools.pairwise(within) if b[2] > a[2]]
            if len(ticks) >= _LEAST_TICKS:
                joules, seconds = joules + ticks[-1][1] - ticks[0][1], seconds + ticks[-1][0] - ticks[0][0]
        return round(joules / seconds, 1) if seconds else None

    def neighbours(self, own: set[int]) -> list[int]:
        """Process ids that use the GPU for computing, other than `own`."""
        with contextlib.suppress(nvml.NvmlError):
            running = nvml.device_get_compute_running_processes_v3(self._handle)
            return sorted({int(running[index].pid) for index in range(len(running))} - own - {os.getpid()})
        return []

    def neighbours_that_stay(self, seconds: float) -> list[int]:
        """Process ids that still use the GPU after `seconds`; returns as soon as there are none."""
        until = time.monotonic() + seconds
        while (found := self.neighbours(set())) and time.monotonic() < until:
            time.sleep(0.1)
        return found
