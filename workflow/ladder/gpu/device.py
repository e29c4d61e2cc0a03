"""One GPU in this process: context, stream, memory, harness kernels and L2, through cuda.core."""

import ctypes
import functools
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from cuda.bindings import driver
from cuda.core import Buffer, Device, Kernel, LaunchConfig, ObjectCode, Stream, launch

from ladder.model.errors import LadderError
from ladder.model.problem import NOTHING, READ

Launcher = Callable[[], None]  # enqueues one run on the GPU's stream

_THREADS = 256
_LEAST_L2_BYTES = 32 * 1024 * 1024  # overwritten at least, also where the L2 holds less


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
        self.stream: Stream = self.device.create_stream()
        properties = self.device.properties
        self.sms: int = properties.multiprocessor_count
        self.l2_bytes: int = properties.l2_cache_size
        self.compute_capability: tuple[int, int] = tuple(self.device.compute_capability)
        self.block_shared_bytes: int = properties.max_shared_memory_per_block_optin
        # Data-centre parts have fp64 at half the rate of fp32 or better.
        self.full_rate_fp64 = self.compute_capability in {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
        self.harness = Harness(self, harness, symbols)
        self.l2 = L2(self, self.l2_bytes)

    def free_bytes(self) -> int:
        return int(checked(driver.cuMemGetInfo())[0])

    def allocate(self, size: int) -> Buffer:
        """A buffer of `size` bytes, rounded up to whole words. Raises OutOfDeviceMemory."""
        try:
            return self.device.allocate(max(-(-size // 16), 1) * 16, stream=self.stream)
        except Exception as error:
            if "OUT_OF_MEMORY" in str(error):
                raise OutOfDeviceMemory(f"{size} bytes of device memory were refused: {error}") from error
            raise

    def sync(self) -> None:
        """Wait for everything enqueued. Raises what the device ran into."""
        self.stream.sync()

    def download(self, pointer: int, size: int) -> bytes:
        """Copy `size` bytes from the device, after everything enqueued."""
        host = ctypes.create_string_buffer(size)
        self.sync()
        checked(driver.cuMemcpyDtoH(ctypes.addressof(host), pointer, size))
        return host.raw

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a device-to-device copy of `size` bytes."""
        checked(driver.cuMemcpyDtoDAsync(target, source, size, self.stream.handle))


class L2:
    """The state of a GPU's L2 cache before a launch, which a regime is made of: buffers that take its place."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.gpu, self.bytes = gpu, max(size, _LEAST_L2_BYTES)
        self._flush = gpu.allocate(self.bytes)

    @functools.cached_property
    def _clean(self) -> Buffer:
        """Zeros, four times what the L2 holds: less might leave what it means to evict."""
        buffer = self.gpu.allocate(4 * self.bytes)
        buffer.fill(0, stream=self.gpu.stream)
        return buffer

    def prepare(self, regime: str) -> None:
        """Enqueue what comes before a launch: a flush of the L2, if cold also a read of other data; nothing if warm."""
        if regime != "warm":
            self._flush.fill(0, stream=self.gpu.stream)
        if regime == "cold":
            self.gpu.harness.read_through(self._clean)

    def warm_up(self, seconds: float) -> None:
        """Keep the GPU busy until its clocks have risen."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                self.prepare("dirty")
            self.gpu.sync()


class Harness:
    """The harness kernels of a problem.

    Of their arguments integers are 64 bits wide and floats are doubles; what differs comes as a ctypes object.
    `maximum` (double) and `count` (64 bits) are addresses for results of a comparing kernel, see `reduce`.
    """

    def __init__(self, gpu: Gpu, cubin: bytes, symbols: Mapping[str, str]) -> None:
        code = ObjectCode.from_cubin(cubin)
        self.kernels: dict[str, Kernel] = {entry: code.get_kernel(name) for entry, name in symbols.items()}
        self._gpu, self._scratch = gpu, gpu.allocate(16)
        self.maximum = int(self._scratch.handle)
        self.count = self.maximum + 8
        config = LaunchConfig(grid=1, block=1)
        self.nothing: Launcher = functools.partial(launch, gpu.stream, config, self.kernels[NOTHING])

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        """Enqueue one kernel over `elements` with a grid-stride loop."""
        blocks = max(1, min((elements + _THREADS - 1) // _THREADS, self._gpu.sms * 16))
        config = LaunchConfig(grid=blocks, block=_THREADS)
        launch(self._gpu.stream, config, self.kernels[entry], *arguments)

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        """(maximum, count) that a comparing kernel leaves at `self.maximum` and `self.count`, two of its arguments."""
        self._scratch.fill(0, stream=self._gpu.stream)
        self.run(entry, elements, *arguments)
        return struct.unpack("dQ", self._gpu.download(self.maximum, 16))

    def read_through(self, data: Buffer) -> None:
        """Enqueue a read of a whole buffer of zeros."""
        chunks = data.size // 16
        self.run(READ, chunks, int(data.handle), chunks, self.maximum)
