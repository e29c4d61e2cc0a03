"""Clocks, power, temperature and neighbours of one GPU through NVML, read beside the measurement, not within it.

Not every GPU and driver answers every query (vGPU, MIG, WSL2): what NVML does not say is None, and ends nothing.
"""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, Self

from cuda.bindings import nvml

_INTERVAL_S = 0.02
Reading = tuple[float, int | None, float | None, int | None, int | None]
"""time.monotonic in s, SM clock in MHz, energy in J, temperature in °C, NVML's bit mask of what holds clocks down."""
_LEAST_TICKS = 4
_IDLE = 1
_HARMLESS = _IDLE | 2 | 16 | 256  # idle, application clocks, sync boost, display clock


def answer(query: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML says; None where this GPU or driver does not support the query."""
    with contextlib.suppress(nvml.NvmlError):
        return query(*arguments)
    return None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _events(masks: Sequence[int]) -> list[str] | None:
    """Names of what held clocks down in any of the readings; None without a reading."""
    held = {mask & ~_HARMLESS for mask in masks}
    named = [
        reason.name
        for reason in nvml.ClocksEventReasons
        if any(reason.value & mask for mask in held)
    ]
    return named if masks else None


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
        energy_mj = answer(nvml.device_get_total_energy_consumption, self._handle)
        return (
            time.monotonic(),
            answer(nvml.device_get_clock_info, self._handle, nvml.ClockType.CLOCK_SM),
            None if energy_mj is None else energy_mj / 1000,
            answer(
                nvml.device_get_temperature_v,
                self._handle,
                nvml.TemperatureSensors.TEMPERATURE_GPU,
            ),
            answer(nvml.device_get_current_clocks_event_reasons, self._handle),
        )

    def _watch(self) -> None:
        while not self._stop.is_set():
            self._readings.append(self.read())
            self._stop.wait(_INTERVAL_S)

    def since(self, start: float) -> dict[str, Any]:
        """Medians since `start` (time.monotonic), and the mean power; older readings are dropped."""
        self._readings = [reading for reading in self._readings if reading[0] >= start]
        busy = [
            reading for reading in self._readings if not (reading[-1] or 0) & _IDLE
        ] or [self.read()]
        _, clocks, _, temperatures, masks = zip(*busy, strict=True)
        return {
            "sm_clock_mhz": _median(clocks),
            "power_w": self.power_w([(start, time.monotonic())]),
            "temperature_c": _median(temperatures),
            "clock_events": _events([mask for mask in masks if mask is not None]),
        }

    def power_w(self, windows: Sequence[tuple[float, float]]) -> float | None:
        """Mean power in W over windows of time.monotonic; None where they are too short to tell.

        NVML's energy counter ticks about every 100 ms: from the first tick within a window to the last one.
        """
        joules = seconds = 0.0
        for begin, end in windows:
            within = [
                reading for reading in self._readings if begin <= reading[0] <= end
            ]
            counted = [
                (reading[0], reading[2]) for reading in within if reading[2] is not None
            ]
            ticks = [
                after
                for before, after in itertools.pairwise(counted)
                if after[1] > before[1]
            ]
            if len(ticks) >= _LEAST_TICKS:
                joules, seconds = (
                    joules + ticks[-1][1] - ticks[0][1],
                    seconds + ticks[-1][0] - ticks[0][0],
                )
        return round(joules / seconds, 1) if seconds else None

    def neighbours(self, own: set[int]) -> list[int]:
        """Process ids that use the GPU for computing, other than `own`; none where NVML does not say."""
        running = (
            answer(nvml.device_get_compute_running_processes_v3, self._handle) or ()
        )
        return sorted(
            {int(running[index].pid) for index in range(len(running))}
            - own
            - {os.getpid()}
        )

    def neighbours_that_stay(self, seconds: float) -> list[int]:
        """Process ids that still use the GPU after `seconds`; returns as soon as there are none."""
        until = time.monotonic() + seconds
        while (found := self.neighbours(set())) and time.monotonic() < until:
            time.sleep(0.1)
        return found
