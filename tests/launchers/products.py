"""What launchers share: kernels on matrices of fp32, compiled once in a process, and enqueued on any stream."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda.core import (
    Device,
    Kernel,
    LaunchConfig,
    Program,
    ProgramOptions,
    Stream,
    launch,
)

TESTED = 512
"""M, N and K of the size that is timed."""
_HONEST = Path(__file__).parent.parent / "exploits/honest.cuh"
_SOURCE = """
EXPLOIT { honest(ARGUMENTS); }

extern "C" __global__ void store(float* to, float value) { *to = value; }

// Waits until *from changes, at most 20 ms.
extern "C" __global__ void await_change(const volatile float* from) {
  const float before = *from;
  const long long begin = clock64();
  while (*from == before && clock64() - begin < 40000000) {
  }
}
"""


@functools.cache
def kernel(name: str) -> Kernel:
    """One of the kernels above; `exploit` is the product."""
    options = ProgramOptions(arch=f"sm_{Device().arch}")
    program = Program(_HONEST.read_text() + _SOURCE, "c++", options)
    return program.compile("cubin").get_kernel(name)


def stream_at(handle: int) -> Stream:
    return Stream.from_handle(handle)


def other_stream() -> Stream:
    """A stream that waits for no other."""
    return Device().create_stream()


def enqueue(name: str, stream: Stream, *arguments: Any) -> None:
    """Launch a kernel of one thread."""
    launch(stream, LaunchConfig(grid=1, block=1), kernel(name), *arguments)


def product(
    buffers: Any, sizes: Any, stream: Stream, into: int = 0
) -> Callable[[], None]:
    """What enqueues C = A B, into another place than C if one is given."""
    m, n, k = (sizes[name] for name in "mnk")
    config = LaunchConfig(grid=(-(-n // 64), -(-m // 64)), block=256)
    a, b, c = (buffers[name].pointer for name in "abc")
    size = [ctypes.c_int32(extent) for extent in (m, n, k)]
    weights = ctypes.c_float(1), ctypes.c_float(0)
    arguments = a, b, into or c, *size, *weights
    return functools.partial(launch, stream, config, kernel("exploit"), *arguments)
