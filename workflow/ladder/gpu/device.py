"""One GPU in this process: context, stream and memory, through cuda.core."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from cuda.bindings import driver
from cuda.core import Buffer, Device, Event, EventOptions, Stream

from ladder.gpu.driver import checked
from ladder.gpu.harness import Harness
from ladder.gpu.l2 import L2
from ladder.model.errors import LadderError

Launcher = Callable[[], None]
"""Enqueues one run on the GPU's stream."""


class OutOfDeviceMemory(LadderError):
    """A buffer did not fit; the message holds the bytes."""


class Gpu:
    """The first visible GPU: its stream, its memory, its harness kernels and its L2."""

    def __init__(self, harness: Path) -> None:
        self.device = Device(0)
        self.device.set_current()
        self.stream: Stream = self.device.create_stream()
        properties = self.device.properties
        self.sms: int = properties.multiprocessor_count
        self.l2_bytes: int = properties.l2_cache_size
        self.compute_capability: tuple[int, int] = tuple(self.device.compute_capability)
        self.block_shared_bytes: int = properties.max_shared_memory_per_block_optin
        self.block_threads: int = properties.max_threads_per_block
        data = harness.read_bytes()
        self.harness = Harness(self.stream, self.sms, self.allocate(16), self.download, data)
        self.l2 = L2(self.stream, self.l2_bytes, self.allocate, self.harness)

    @property
    def full_rate_fp64(self) -> bool:
        """Whether fp64 runs at half the rate of fp32 or better: data-centre parts 6.0, 7.0, 8.0, 9.0, 10.0."""
        return self.compute_capability in {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}

    def free_bytes(self) -> int:
        """Free device memory in bytes."""
        return int(checked(driver.cuMemGetInfo())[0])

    def allocate(self, size: int) -> Buffer:
        """A buffer of `size` bytes. Raises OutOfDeviceMemory."""
        try:
            return self.device.allocate(max(size, 1), stream=self.stream)
        except Exception as error:
            if "OUT_OF_MEMORY" in str(error):
                raise OutOfDeviceMemory(f"{size} bytes of device memory were refused: {error}") from error
            raise

    def sync(self) -> None:
        """Wait for everything enqueued. Raises what the device ran into."""
        self.stream.sync()

    def event(self) -> Event:
        """An event that records time."""
        return self.device.create_event(EventOptions(timing_enabled=True))

    def download(self, pointer: int, size: int) -> bytes:
        """Copy `size` bytes from the device, after everything enqueued."""
        host = ctypes.create_string_buffer(size)
        self.sync()
        checked(driver.cuMemcpyDtoH(ctypes.addressof(host), pointer, size))
        return host.raw

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a device-to-device copy of `size` bytes."""
        checked(driver.cuMemcpyDtoDAsync(target, source, size, self.stream.handle))

    def fill_words(self, pointer: int, size: int, word: int) -> None:
        """Enqueue a fill with a 32-bit pattern; a last part of a word gets its low bytes."""
        whole = size // 4
        if whole:
            checked(driver.cuMemsetD32Async(pointer, word, whole, self.stream.handle))
        for offset in range(whole * 4, size):
            byte = (word >> (8 * (offset % 4))) & 0xFF
            checked(driver.cuMemsetD8Async(pointer + offset, byte, 1, self.stream.handle))
