"""Clocks, power, temperature and neighbours of one GPU through NVML, read beside the measurement, not within it.

Not every GPU and driver answers every query (vGPU, MIG, WSL2): what NVML does not say is None, and ends nothing.
"""

import contextlib
import functools
import itertools
import operator
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple, Self

from cuda.bindings import nvml

_INTERVAL_S = 0.02
_LEAST_TICKS = 4
_IDLE = 1
_HARMLESS = _IDLE | 2 | 16 | 256  # idle, application clocks, sync boost, display clock


class Reading(NamedTuple):
    """What NVML said at a time of time.monotonic; `events` is its bit mask of what holds clocks down."""

    time_s: float
    sm_clock_mhz: int | None
    energy_j: float | None
    temperature_c: int | None
    events: int | None


def answer(query: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML says; None where this GPU or driver does not support the query."""
    with contextlib.suppress(nvml.NvmlError):
        return query(*arguments)
    return None


def _median(values: Iterable[float | None]) -> float | None:
    answered = [value for value in values if value is not None]
    return median(answered) if answered else None


def _events(readings: Sequence[Reading]) -> list[str] | None:
    """Names of what held clocks down in any of the readings; None where NVML did not say."""
    masks = [reading.events for reading in readings if reading.events is not None]
    if not masks:
        return None
    held = functools.reduce(operator.or_, masks) & ~_HARMLESS
    return [reason.name for reason in nvml.ClocksEventReasons if reason.value & held]


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
        handle = self._handle
        sensors = nvml.TemperatureSensors
        energy_mj = answer(nvml.device_get_total_energy_consumption, handle)
        return Reading(
            time.monotonic(),
            answer(nvml.device_get_clock_info, handle, nvml.ClockType.CLOCK_SM),
            None if energy_mj is None else energy_mj / 1000,
            answer(nvml.device_get_temperature_v, handle, sensors.TEMPERATURE_GPU),
            answer(nvml.device_get_current_clocks_event_reasons, handle),
        )

    def _watch(self) -> None:
        while not self._stop.is_set():
            self._readings.append(self.read())
            self._stop.wait(_INTERVAL_S)

    def since(self, start: float) -> dict[str, Any]:
        """Medians since `start` (time.monotonic), and the mean power; older readings are dropped."""
        self._readings = [
            reading for reading in self._readings if reading.time_s >= start
        ]
        busy = [
            reading for reading in self._readings if not (reading.events or 0) & _IDLE
        ]
        if not busy:
            busy = [self.read()]
        return {
            "sm_clock_mhz": _median(reading.sm_clock_mhz for reading in busy),
            "power_w": self.power_w([(start, time.monotonic())]),
            "temperature_c": _median(reading.temperature_c for reading in busy),
            "clock_events": _events(busy),
        }

    def power_w(self, windows: Sequence[tuple[float, float]]) -> float | None:
        """Mean power in W over windows of time.monotonic; None where they are too short to tell.

        NVML's energy counter ticks about every 100 ms: from the first tick within a window to the last one.
        """
        joules = seconds = 0.0
        for begin, end in windows:
            counted = [
                (reading.time_s, reading.energy_j)
                for reading in self._readings
                if begin <= reading.time_s <= end and reading.energy_j is not None
            ]
            ticks = [
                after
                for before, after in itertools.pairwise(counted)
                if after[1] > before[1]
            ]
            if len(ticks) >= _LEAST_TICKS:
                (first_s, first_j), (last_s, last_j) = ticks[0], ticks[-1]
                joules += last_j - first_j
                seconds += last_s - first_s
        return round(joules / seconds, 1) if seconds else None

    def neighbours(self, own: set[int]) -> list[int]:
        """Process ids that use the GPU for computing, other than `own`; none where NVML does not say."""
        query = nvml.device_get_compute_running_processes_v3
        running = answer(query, self._handle) or ()
        # The binding's arrays have a length and an index, and no iterator.
        pids = {int(running[index].pid) for index in range(len(running))}
        return sorted(pids - own - {os.getpid()})

    def neighbours_that_stay(self, seconds: float) -> list[int]:
        """Process ids that still use the GPU after `seconds`; returns as soon as there are none."""
        until = time.monotonic() + seconds
        while (neighbours := self.neighbours(set())) and time.monotonic() < until:
            time.sleep(0.1)
        return neighbours
