"""One GPU in this process: context, stream, memory, kernels and events, through cuda.core."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver
from cuda.core import Buffer, Device, Event, EventOptions, Kernel, LaunchConfig, ObjectCode, Stream, launch

from ladder.errors import LadderError
from ladder.harness import GATE, READ, split_harness
from ladder.tensor_maps import tensor_map

if TYPE_CHECKING:
    from ladder.libraries import Libraries
    from ladder.problems.base import Instance

_CTYPES: dict[str, type[Any]] = {"int32": ctypes.c_int32, "int64": ctypes.c_int64, "float32": ctypes.c_float}
_THREADS = 256
_LEAST_FLUSH_BYTES = 32 * 1024 * 1024
"""Overwritten at least, also where the L2 holds less."""
_GATE_NS = 2_000_000_000
"""Longest time in ns that the gate holds a stream."""
MAXIMUM, COUNT = "<maximum>", "<count>"
"""Placeholders for the two results of a comparing kernel; see Gpu.reduce."""


class OutOfDeviceMemory(LadderError):
    """A buffer did not fit; the message holds the bytes."""


def checked(result: tuple[Any, ...]) -> Any:
    """Unpack (status, value…) of a driver call; None without a value. Raises LadderError naming the status."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise LadderError(f"the driver says {status.name}")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


@dataclass(frozen=True)
class Loaded:
    """A kernel with its launch configuration and arguments: calling it enqueues one launch."""

    stream: Stream
    kernel: Kernel
    config: LaunchConfig
    arguments: tuple[Any, ...]

    def __call__(self) -> None:
        launch(self.stream, self.config, self.kernel, *self.arguments)


@dataclass(frozen=True)
class Captured:
    """A CUDA graph of several launches: calling it enqueues the graph."""

    stream: Stream
    graph: Any

    def __call__(self) -> None:
        self.graph.launch(self.stream)

    def close(self) -> None:
        """Free the graph."""
        self.graph.close()


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


class Gpu:
    """The first visible GPU, its stream, its harness kernels and a buffer that flushes its L2."""

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
        self._flush = self.allocate(max(self.l2_bytes, _LEAST_FLUSH_BYTES))
        symbols, cubin = split_harness(harness.read_bytes())
        code = ObjectCode.from_cubin(cubin)
        self._harness = {entry: code.get_kernel(symbol) for entry, symbol in symbols.items()}
        self.gate = Gate(self.stream, self._harness[GATE])
        self._scratch = self.allocate(16)
        self._latest: tuple[bytes, Kernel] | None = None
        self.events: list[Event] = []
        self.busy_us = 0.0
        self.lt_heuristics = 1

    @property
    def full_rate_fp64(self) -> bool:
        """Whether fp64 runs at half the rate of fp32 or better: data-centre parts 6.0, 7.0, 8.0, 9.0, 10.0."""
        return self.compute_capability in {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}

    @functools.cached_property
    def libraries(self) -> Libraries:
        """cuBLAS and cuBLASLt on this GPU's stream."""
        from ladder.libraries import Libraries

        return Libraries(self)

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

    def flush_l2(self) -> None:
        """Overwrite the L2, so that the next launch finds none of its data there."""
        self._flush.fill(0, stream=self.stream)

    @functools.cached_property
    def _clean(self) -> Buffer:
        """Zeros, four times what the L2 holds: less might leave what it means to evict."""
        buffer = self.allocate(4 * max(self.l2_bytes, _LEAST_FLUSH_BYTES))
        buffer.fill(0, stream=self.stream)
        return buffer

    def clean_l2(self) -> None:
        """Read through other data, so that the L2 holds nothing that has yet to be written to memory."""
        chunks = self._clean.size // 16
        pointers = int(self._clean.handle), int(self._scratch.handle)
        self.run_harness(READ, chunks, pointers[0], ctypes.c_longlong(chunks), pointers[1])

    def warm_up(self, seconds: float) -> None:
        """Keep the GPU busy until its clocks have risen."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self.flush_l2()
            self.sync()

    def capture(self, launcher: Callable[[], None], launches: int) -> Captured:
        """A graph of `launches` back-to-back calls of `launcher`, which enqueues on this GPU's stream."""
        builder = self.stream.create_graph_builder()
        builder.begin_building("relaxed")
        for _ in range(launches):
            launcher()
        builder.end_building()
        graph = builder.complete()
        graph.upload(self.stream)
        self.sync()
        return Captured(self.stream, graph)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Count the time between the first and the last work enqueued inside as GPU time."""
        before, after = self.event(), self.event()
        self.stream.record(before)
        yield
        self.stream.record(after)
        self.sync()
        self.busy_us += (after - before) * 1e3

    def static_shared_bytes(self, cubin: bytes) -> int:
        """Static shared memory in bytes of the one kernel in a cubin."""
        return int(self._kernel(cubin).attributes.shared_size_bytes)

    def _kernel(self, cubin: bytes) -> Kernel:
        """The one kernel of a cubin; loaded modules are kept while the same cubin is asked for."""
        if self._latest is None or self._latest[0] != cubin:
            code = ObjectCode.from_cubin(cubin)
            handle = checked(driver.cuLibraryEnumerateKernels(1, code.handle))[0]
            self._latest = cubin, code.get_kernel(checked(driver.cuKernelGetName(handle)))
        return self._latest[1]

    def sync(self) -> None:
        """Wait for everything enqueued. Raises what the device ran into."""
        self.stream.sync()

    def event(self) -> Event:
        """An event that records time."""
        return self.device.create_event(EventOptions(timing_enabled=True))

    def load(self, cubin: bytes, plan: Mapping[str, Any], instance: Instance) -> Loaded:
        """The one kernel of a cubin, ready to launch on an instance as the plan says.

        The instance's scalars are read at once: load again after changing one. Raises LadderError from the driver.
        """
        kernel = self._kernel(cubin)
        shared = plan["shared_bytes"]
        if shared > 48 * 1024:
            checked(
                driver.cuKernelSetAttribute(
                    driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared,
                    driver.CUkernel(int(kernel.handle)),
                    driver.CUdevice(self.device.device_id),
                )
            )
        cluster = plan.get("cluster")
        grid = tuple(plan["grid"])
        if cluster:
            # cuda.core counts the grid in clusters.
            grid = tuple(blocks // size for blocks, size in zip(grid, cluster, strict=True))
        config = LaunchConfig(
            grid=grid,
            block=tuple(plan["block"]),
            cluster=tuple(cluster) if cluster else None,
            shmem_size=shared,
        )
        arguments = tuple(self._argument(argument, instance) for argument in plan["arguments"])
        return Loaded(self.stream, kernel, config, arguments)

    @staticmethod
    def _argument(argument: Mapping[str, Any], instance: Instance) -> Any:
        if "pointer" in argument:
            return instance.pointers[argument["pointer"]]
        if "tensor_map" in argument:
            tensor = instance.tensor(argument["tensor_map"])
            return tensor_map(tensor, argument["box"], argument["swizzle"], argument["l2_promotion"])
        value = argument["value"] if "value" in argument else instance.scalars[argument["scalar"]]
        return _CTYPES[argument["type"]](value)

    def run_harness(self, entry: str, elements: int, *arguments: Any) -> None:
        """Launch one harness kernel over `elements` with a grid-stride loop."""
        blocks = max(1, min((elements + _THREADS - 1) // _THREADS, self.sms * 16))
        config = LaunchConfig(grid=blocks, block=_THREADS)
        launch(self.stream, config, self._harness[entry], *arguments)

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        """Run a comparing kernel that takes (double* maximum, unsigned long long* count) where it wants them.

        `arguments` may hold the placeholders MAXIMUM and COUNT. Returns (maximum, count).
        """
        base = int(self._scratch.handle)
        self._scratch.fill(0, stream=self.stream)
        where = {MAXIMUM: base, COUNT: base + 8}
        filled = [where[word] if isinstance(word, str) else word for word in arguments]
        self.run_harness(entry, elements, *filled)
        raw = self.download(base, 16)
        maximum = ctypes.c_double.from_buffer_copy(raw, 0).value
        count = ctypes.c_uint64.from_buffer_copy(raw, 8).value
        return maximum, count

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
