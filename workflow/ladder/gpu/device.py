"""One GPU in this process: context, stream, memory, harness kernels and L2, through cuda.core."""

import ctypes
import functools
import math
import secrets
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda.bindings import driver
from cuda.core import Buffer, Device, Kernel, LaunchConfig, ObjectCode, Stream, launch

from ladder.model.architecture import peaks
from ladder.model.errors import LadderError
from ladder.model.intervals import median
from ladder.model.problem import CLOCKS, NOTHING, READ, SCRUB

Launcher = Callable[[], None]  # enqueues one run on the GPU's stream

RESULT_SLOTS = 4096  # checks whose results wait to be read

# On each side of a buffer: a page, so that buffers begin where pages do.
GUARD_BYTES = 2**21
# What they hold: no byte of a small number or of 1.0.
GUARD_BYTE = 0x81 + secrets.randbelow(60)

Guard = tuple[int, int, bool]
"""Address, bytes, and whether it lies behind its buffer."""

FLUSHED = "flushed"
"""State of the L2 ahead of launches that are only planned by; no regime of a cell."""

_RUNNING = 32  # bytes of what checking kernels share until the last block is done
_THREADS = 256
_MOST_SMS = 1024
_WORD = 2**64 - 1
_LEAST_L2_BYTES = 32 * 1024 * 1024  # overwritten at least, also where the L2 holds less
_Attribute = driver.CUfunction_attribute


class OutOfDeviceMemory(LadderError):
    """A buffer did not fit; the message holds the bytes."""


def checked(result: tuple[Any, ...]) -> Any:
    """Unpack (status, value…) of a driver call; None without a value. Raises LadderError naming the status."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise LadderError(f"the driver says {status.name}")
    return tuple(values) if len(values) > 1 else next(iter(values), None)


class Gpu:
    """The first visible GPU: stream, memory, L2, and the harness kernels of a cubin, whose names `symbols` has."""

    def __init__(self, harness: bytes, symbols: Mapping[str, str]) -> None:
        self.device = Device(0)
        self.device.set_current()
        # Of buffers that last as long as the process.
        self.guards: list[tuple[str, Guard]] = []
        self._lasting: list[Buffer] = []
        self.stream: Stream = self.device.create_stream()
        properties = self.device.properties
        self.sms: int = properties.multiprocessor_count
        self.l2_bytes: int = properties.l2_cache_size
        self.compute_capability: tuple[int, int] = tuple(self.device.compute_capability)
        self.block_shared_bytes: int = properties.max_shared_memory_per_block_optin
        # At two transfers a clock, as all memory of GPUs has it. Integrated memory says 0: its rate is not known.
        width = properties.global_memory_bus_width
        rate = properties.memory_clock_rate * width / 4e3
        self.memory_bytes_per_us: float = rate or math.inf
        self.boost_clock_mhz: float = properties.clock_rate / 1e3
        major, minor = self.compute_capability
        self.fp32_tflops, self.tensor_tflops = peaks(
            int(f"{major}{minor}"), self.device.name, self.sms, self.boost_clock_mhz
        )
        # Data-centre parts have fp64 at half the rate of fp32 or better.
        self.full_rate_fp64 = minor == 0 and major in range(6, 11)
        self.harness = Harness(self, harness, symbols)
        self.l2 = L2(self, self.l2_bytes)

    def host_us(self) -> float:
        """The host's clock in µs."""
        return time.perf_counter() * 1e6

    def free_bytes(self) -> int:
        return int(checked(driver.cuMemGetInfo())[0])

    def total_bytes(self) -> int:
        return int(checked(driver.cuMemGetInfo())[1])

    def allocate(self, size: int) -> Buffer:
        """A buffer of `size` bytes, rounded up to whole words. Raises OutOfDeviceMemory."""
        try:
            return self.device.allocate(max(-(-size // 16), 1) * 16, stream=self.stream)
        except Exception as error:
            if "OUT_OF_MEMORY" in str(error):
                raise OutOfDeviceMemory(
                    f"{size} bytes of device memory were refused: {error}"
                ) from error
            raise

    def allocate_guarded(self, name: str, size: int) -> Buffer:
        """A buffer for the whole process, between guards that instances look at. Raises OutOfDeviceMemory."""
        whole = self.allocate(size + 2 * GUARD_BYTES)
        whole.fill(GUARD_BYTE, stream=self.stream)
        # Its guards are looked at for as long, whoever asked for it and is gone.
        self._lasting.append(whole)
        begin = int(whole.handle) + GUARD_BYTES
        self.guards += [(name, guard) for guard in guards_of(whole, begin, size)]
        return Buffer.from_handle(begin, size, owner=whole)

    def sync(self) -> None:
        """Wait for everything enqueued, on whatever stream. Raises what the device ran into."""
        self.device.sync()

    def met_unmapped_memory(self) -> bool:
        """Whether an access where nothing is mapped ended the context. Of some by the TMA, CUDA says LAUNCH_FAILED.

        The context keeps the code, whoever saw it first and by whatever name: driver, runtime or torch.
        """
        (status,) = driver.cuCtxSynchronize()
        return status in (
            driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,
            driver.CUresult.CUDA_ERROR_LAUNCH_FAILED,
        )

    def refuse_other_context(self) -> None:
        """Raises LadderError where the host has made another CUDA context current; this one is so again."""
        own = self.stream.context.handle
        if int(checked(driver.cuCtxGetCurrent())) != int(own):
            checked(driver.cuCtxSetCurrent(own))
            raise LadderError("leaves another CUDA context or device current")

    def download(self, pointer: int, size: int) -> bytes:
        """Copy `size` bytes from the device, after everything enqueued."""
        host = ctypes.create_string_buffer(size)
        into, stream = ctypes.addressof(host), self.stream.handle
        checked(driver.cuMemcpyDtoHAsync(into, pointer, size, stream))
        self.sync()
        return host.raw

    def upload(self, data: bytes) -> Buffer:
        """A buffer with a copy of `data`."""
        buffer = self.allocate(len(data))
        self.sync()
        checked(driver.cuMemcpyHtoD(int(buffer.handle), data, len(data)))
        return buffer

    def zero(self, pointer: int, size: int) -> None:
        """Enqueue zeros for `size` bytes."""
        checked(driver.cuMemsetD8Async(pointer, 0, size, self.stream.handle))

    def allow_shared(self, kernel: Kernel, size: int) -> None:
        """Let a kernel have more dynamic shared memory, in bytes a block, than the 48 KiB that each may have."""
        limit = _Attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._set_attribute(kernel, limit, size)

    def allow_large_clusters(self, kernel: Kernel) -> None:
        """Let a kernel have clusters of more blocks than the 8 that every GPU has room for."""
        allowed = _Attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        self._set_attribute(kernel, allowed, 1)

    def _set_attribute(
        self, kernel: Kernel, attribute: driver.CUfunction_attribute, value: int
    ) -> None:
        handle = driver.CUkernel(int(kernel.handle))
        device = driver.CUdevice(self.device.device_id)
        checked(driver.cuKernelSetAttribute(attribute, value, handle, device))

    def scrub_shared(self) -> None:
        """Enqueue poison for the shared memory of every multiprocessor, as one block's of which it holds only one."""
        size = self.block_shared_bytes
        config = LaunchConfig(grid=self.sms, block=_THREADS, shmem_size=size)
        launch(self.stream, config, self.harness.kernels[SCRUB], ctypes.c_int64(size))

    def read_clocks(self) -> Buffer:
        """Enqueue a reading of the multiprocessors' cycle counters and of the global timer, for `mean_mhz`."""
        reading = self.allocate(_MOST_SMS * 16)
        reading.fill(0, stream=self.stream)
        config = LaunchConfig(grid=2 * self.sms, block=1)  # so that each has a block
        launch(self.stream, config, self.harness.kernels[CLOCKS], int(reading.handle))
        return reading

    def mean_mhz(self, before: Buffer, after: Buffer) -> float:
        """The SM clock between two readings, the median over multiprocessors; frees them."""
        readings = []
        for buffer in (before, after):
            data = self.download(int(buffer.handle), _MOST_SMS * 16)
            readings.append(struct.iter_unpack("2q", data))
            buffer.close(self.stream)
        clocks = []
        for (cycles, ns), (later_cycles, later_ns) in zip(*readings, strict=True):
            # A multiprocessor that had no block has no time.
            if ns and later_ns > ns:
                clocks.append((later_cycles - cycles) / (later_ns - ns) * 1e3)
        return float(median(clocks))

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a device-to-device copy of `size` bytes."""
        checked(driver.cuMemcpyDtoDAsync(target, source, size, self.stream.handle))


def guards_of(allocation: Buffer, begin: int, size: int) -> tuple[Guard, Guard]:
    """What lies ahead of a buffer, and behind it, in the allocation that it is part of."""
    first, end = int(allocation.handle), begin + size
    behind = first + allocation.size - end
    return (first, begin - first, False), (end, behind, True)


class L2:
    """The state of a GPU's L2 cache before a launch, which a regime is made of: buffers that take its place.

    `bytes` is the size of such a buffer, which may be larger than the cache: one no larger might evict nothing.
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.gpu, self.bytes = gpu, max(size, _LEAST_L2_BYTES)
        self._flush = gpu.allocate_guarded("the buffer that flushes the L2", self.bytes)

    @functools.cached_property
    def _clean(self) -> Buffer:
        """Zeros, four times what the L2 holds: less might leave what it means to evict."""
        buffer = self.gpu.allocate_guarded(
            "the buffer that cleans the L2", 4 * self.bytes
        )
        buffer.fill(0, stream=self.gpu.stream)
        return buffer

    def prepare(self, regime: str) -> None:
        """Enqueue what comes before a launch: unless warm a flush of the L2, then if cold a read of other data.

        A flush alone leaves lines that are still to be written to memory.
        """
        if regime != "warm":
            self._flush.fill(0, stream=self.gpu.stream)
        if regime == "cold":
            self.gpu.harness.read_through(self._clean)

    def warm_up(self, seconds: float) -> None:
        """Keep the GPU busy until its clocks have risen."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self.prepare(FLUSHED)
            self.gpu.sync()


class CheckResultSlot(ctypes.Structure):
    """The same struct of harness.cuh: where a checking kernel of one launch leaves its maximum, and a secret key."""

    _fields_ = (
        ("running", ctypes.c_uint64),
        ("result", ctypes.c_uint64),
        ("key", ctypes.c_uint64),
    )


def _mixed(seed: int, index: int) -> int:
    """The same function of harness.cuh."""
    z = seed * 0xD1342543DE82EF95 + (index + 1) * 0x9E3779B97F4A7C15 & _WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
    return z ^ z >> 31


class Harness:
    """The harness kernels of a problem.

    Of their arguments integers are 64 bits wide and floats are doubles; what differs comes as a ctypes object.
    `maximum` (double) and `count` (64 bits) are addresses for results of a comparing kernel, see `reduce`.
    """

    def __init__(self, gpu: Gpu, cubin: bytes, symbols: Mapping[str, str]) -> None:
        code = ObjectCode.from_cubin(cubin)
        self.kernels = {entry: code.get_kernel(name) for entry, name in symbols.items()}
        self._gpu = gpu
        size = 16 + _RUNNING + 16 * RESULT_SLOTS
        self._scratch = gpu.allocate_guarded("the results of checks", size + 16)
        self._scratch.fill(0, stream=gpu.stream)
        self.maximum = int(self._scratch.handle)
        self.count = self.maximum + 8
        self._not_zero = self.maximum + size
        gpu.allow_shared(self.kernels[SCRUB], gpu.block_shared_bytes)
        config = LaunchConfig(grid=1, block=1)
        self.nothing: Launcher = functools.partial(
            launch, gpu.stream, config, self.kernels[NOTHING]
        )

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        """Enqueue one kernel over `elements` with a grid-stride loop."""
        blocks = max(1, min(-(-elements // _THREADS), self._gpu.sms * 16))
        typed = [_typed(value) for value in arguments]
        addresses = (ctypes.c_void_p * len(typed))(*map(ctypes.addressof, typed))
        # Not by cuda.core, which takes no structures and more time.
        checked(
            driver.cuLaunchKernel(
                driver.CUfunction(int(self.kernels[entry].handle)),
                *(blocks, 1, 1),
                *(_THREADS, 1, 1),
                0,
                self._gpu.stream.handle,
                ctypes.addressof(addresses),
                0,
            )
        )

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        """(maximum, count) that a comparing kernel leaves at `self.maximum` and `self.count`, two of its arguments."""
        self._gpu.zero(self.maximum, 16)
        self.run(entry, elements, *arguments)
        return struct.unpack("dQ", self._gpu.download(self.maximum, 16))

    def result_slot(self, index: int, key: int) -> CheckResultSlot:
        """The slot of a check, the first one since results were read being number 0."""
        running = self.maximum + 16
        self._gpu.zero(running, _RUNNING)  # A kernel may have written there.
        return CheckResultSlot(running, running + _RUNNING + 16 * index, key)

    def read_check_results(self, keys: Sequence[int]) -> list[float]:
        """What checks left in their slots, in order; infinity where it is not what the holder of the key wrote."""
        running, size = self.maximum + 16, _RUNNING + 16 * len(keys)
        results = self._gpu.download(running, size)[_RUNNING:]
        self._gpu.zero(running, size)
        errors = []
        for key, (bits, tag) in zip(
            keys, struct.iter_unpack("QQ", results), strict=True
        ):
            is_tagged = tag == _mixed(key, bits)
            errors.append(as_double(bits) if is_tagged else math.inf)
        return errors

    def read_through(self, data: Buffer) -> None:
        """Enqueue a read of a whole buffer of zeros."""
        chunks = data.size // 16
        self.run(READ, chunks, int(data.handle), chunks, self._not_zero)

    def zeros_were_written(self) -> bool:
        """Whether something else than zeros was read by `read_through`."""
        return any(self._gpu.download(self._not_zero, 4))


def _typed(value: Any) -> Any:
    if isinstance(value, float):
        return ctypes.c_double(value)
    return ctypes.c_int64(value) if isinstance(value, int) else value


def as_double(bits: int) -> float:
    """The number of type double that has these bits."""
    number: float = struct.unpack("d", struct.pack("Q", bits))[0]
    return number
