"""The gate in front of a timed launch."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver
from cuda.core import Kernel, LaunchConfig, Stream, launch

from ladder.gpu.driver import checked
from ladder.model.errors import LadderError

_GATE_NS = 2_000_000_000
"""Longest time in ns that the gate holds a stream."""


class Gate:
    """Holds the stream while its `with` block enqueues work, which then runs without waiting for the host.

    A kernel of one thread reads a word of host memory until it holds the ticket of this closing.
    """

    def __init__(self, stream: Stream, kernel: Kernel) -> None:
        host = checked(driver.cuMemHostAlloc(8, driver.CU_MEMHOSTALLOC_DEVICEMAP))
        # Kept to the end of the process: a kernel may wait for it.
        self._ticket, self._gave_up = (ctypes.c_int.from_address(int(host) + offset) for offset in (0, 4))
        self._ticket.value = self._gave_up.value = 0
        self._words = int(checked(driver.cuMemHostGetDevicePointer(host, 0)))
        self._stream, self._kernel = stream, kernel
        self._config = LaunchConfig(grid=1, block=1)
        self._next = 0

    def __enter__(self) -> None:
        self._next += 1
        words, limit = self._words, ctypes.c_int64(_GATE_NS)
        launch(self._stream, self._config, self._kernel, words, ctypes.c_int32(self._next), limit)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises LadderError where the stream went on by itself, since the host was away too long."""
        self._ticket.value = self._next
        if self._gave_up.value and kind is None:
            self._gave_up.value = 0
            raise LadderError(
                f"enqueueing one launch took more than {_GATE_NS / 1e9:g} s: it cannot be timed"
            )
