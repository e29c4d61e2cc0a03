"""A GPU whose memory is only counted: what calls of harness kernels are held to without one."""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

from compiling import parameter_bytes
from ladder.build.variants import harness
from ladder.gpu.device import CheckResultSlot
from ladder.problems.registry import PROBLEMS

ARCH = "sm_90a"


@functools.cache
def kernels(problem: str, dtype: str) -> dict[str, list[int]]:
    """Bytes of the parameters of each harness kernel, by name expression."""
    return parameter_bytes(harness(PROBLEMS[problem], dtype, ARCH))


class FakeBuffer:
    def __init__(self, size: int, handle: int) -> None:
        self.size = size
        self.handle = handle

    @staticmethod
    def from_handle(pointer: int, size: int, owner: Any) -> FakeBuffer:
        assert owner.handle <= pointer
        assert pointer + size <= owner.handle + owner.size
        return FakeBuffer(size, pointer)

    def close(self, *_: Any) -> None:
        pass

    def fill(self, value: int | bytes, stream: Any) -> None:
        assert isinstance(value, int) or self.size % len(value) == 0


class FakeGpu:
    """Memory that is only counted, and a harness that holds calls to the parameters of its kernels."""

    sms = 132
    full_rate_fp64 = True
    stream = None
    maximum = 64
    count = 72
    guards: ClassVar[list[Any]] = []

    def __init__(self, problem: str, dtype: str) -> None:
        self.sizes = kernels(problem, dtype)
        self.harness, self.called = self, set[str]()
        self._free = itertools.count(2**40, 2**34)

    def zeros_were_written(self) -> bool:
        return False

    def allocate(self, size: int) -> FakeBuffer:
        return FakeBuffer(-(-size // 16) * 16, next(self._free))

    def upload(self, data: bytes) -> FakeBuffer:
        return self.allocate(len(data))

    def zero(self, pointer: int, size: int) -> None:
        assert pointer > 0 < size

    def copy(self, target: int, source: int, size: int) -> None:
        assert target > 0 < source

    def download(self, pointer: int, size: int) -> bytes:
        return bytes(size)

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        given = [
            8 if isinstance(one, int | float) else ctypes.sizeof(one)
            for one in arguments
        ]
        assert given == self.sizes[entry], entry
        assert elements > 0
        self.called.add(entry.split("<")[0])

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        self.run(entry, elements, *arguments)
        return 0.0, 0


class FakeLibraries:
    """cuBLAS and cuBLASLt, which launch nothing."""

    def cublas(self, gemm: Any) -> Any:
        return lambda: None


def fake_instance(
    problem: str, dtype: str, size: dict[str, int], layout: str = ""
) -> Any:
    """An instance of a problem on such a GPU."""
    kind = importlib.import_module(f"ladder.problems.{problem}.instance").INSTANCE
    libraries = dict.fromkeys(("gemm", "scaled_gemm"), (FakeLibraries(),))
    handles = {**libraries, "transpose": (77,)}.get(problem, ())
    return kind(*handles, FakeGpu(problem, dtype), size, dtype, layout)


def use_as_a_worker_does(made: Any, params: Mapping[str, int]) -> set[str]:
    """All that happens to an instance, at its own place and in chains. The kernels of the check that were called."""
    made.provide_workspace(
        {"pointer": "zeroed workspace", "workspace": "zeroed", "bytes": 64}
    )
    for place in (0, 1, 5):
        with made.writing_to(place):
            made.poison_outputs()
            made.fill_inputs(3)
            made.check(params)
            made.refresh(4)
            made.inspect(params, CheckResultSlot(1, 2, 3))
            made.renew(5)
    assert made.memory_violation() is None
    return set(made.gpu.called)
