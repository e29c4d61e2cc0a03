"""The state of the L2 cache before a launch: what a regime is made of."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from cuda.core import Buffer, Stream

from ladder.gpu.harness import Harness

_LEAST_BYTES = 32 * 1024 * 1024
"""Overwritten at least, also where the L2 holds less."""


class L2:
    """Buffers that take the place of a kernel's data in the L2."""

    def __init__(
        self, stream: Stream, size: int, allocate: Callable[[int], Buffer], harness: Harness
    ) -> None:
        self.bytes = max(size, _LEAST_BYTES)
        self._stream, self._allocate, self._harness = stream, allocate, harness
        self._flush = allocate(self.bytes)

    @functools.cached_property
    def _clean(self) -> Buffer:
        """Zeros, four times what the L2 holds: less might leave what it means to evict."""
        buffer = self._allocate(4 * self.bytes)
        buffer.fill(0, stream=self._stream)
        return buffer

    def flush(self) -> None:
        """Overwrite the L2: the next launch finds none of its data there, but lines that have yet to be written."""
        self._flush.fill(0, stream=self._stream)

    def prepare(self, regime: str) -> None:
        """Enqueue what a launch of `regime` finds: dirty, flushed; cold, nothing left to be written; warm, as it is."""
        if regime == "warm":
            return
        self.flush()
        if regime == "cold":
            self._harness.read_through(self._clean)

    def warm_up(self, seconds: float) -> None:
        """Keep the GPU busy until its clocks have risen."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self.flush()
            self._stream.sync()
