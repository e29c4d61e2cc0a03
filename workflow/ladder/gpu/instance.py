"""A problem on a device: buffers, inputs, references and check. Each problem's `instance` module has its INSTANCE."""

import ctypes
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cuda.core import Buffer

from ladder.gpu.device import Gpu, Launcher
from ladder.gpu.timing import Timer
from ladder.model.errors import LadderError
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, GUARD, Params

_GUARD_BYTES = 2**21  # on each side of a buffer: a page, so that buffers begin where pages do
_GUARD = 0x81 + secrets.randbelow(60)  # what they hold: no byte of a small number or of 1.0


@dataclass(frozen=True)
class Tensor:
    """A dense row-major buffer with its shape, outermost extent first, and element dtype; guards are around it."""

    buffer: Buffer
    shape: tuple[int, ...]
    dtype: str
    guarded: Buffer

    def guards(self) -> Iterator[tuple[bool, int, int]]:
        """Of each guard whether it lies behind the buffer, its address and its bytes."""
        first, size = int(self.guarded.handle), self.guarded.size
        yield False, first, _GUARD_BYTES
        yield True, first + _GUARD_BYTES + self.buffer.size, size - _GUARD_BYTES - self.buffer.size


@dataclass(frozen=True)
class Check:
    """Outcome of verifying one output: correct where max_error <= error_bound and nothing was left unwritten."""

    max_error: float
    error_bound: float
    detail: str = ""

    @property
    def correct(self) -> bool:
        """NaN compares false, so an unwritten (poisoned) output never passes."""
        return self.max_error <= self.error_bound

    def __str__(self) -> str:
        """What is wrong."""
        return self.detail or f"largest normalised error {self.max_error:.3g}, allowed {self.error_bound:.3g}"


class Instance(ABC):
    """One problem at one size and dtype on a device: buffers, inputs, references, check. Raises OutOfDeviceMemory."""

    def __init__(self, gpu: Gpu, size: Mapping[str, int], dtype: str, layout: str) -> None:
        self.gpu, self.size, self.dtype, self.layout = gpu, size, dtype, layout
        self.tensors: dict[str, Tensor] = {}
        self.pointers: dict[str, int] = {}
        self.scalars: dict[str, float] = {}
        self._drawn: dict[str, int] = {}
        for name, (shape, element) in self.shapes().items():
            self.add_buffer(name, shape, element)

    @classmethod
    def maker(cls, timer: Timer, settings: Mapping[str, Any]) -> "Maker":
        """What makes instances on the timer's GPU, asked for once a process; `settings` are the plan's."""
        return cls

    @abstractmethod
    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and element dtype of each buffer."""

    @abstractmethod
    def fill_inputs(self, seed: int) -> None:
        """Draw fresh inputs."""

    @abstractmethod
    def poison_outputs(self) -> None:
        """Overwrite every output, so that an element nobody writes fails the check."""

    @abstractmethod
    def check(self, params: Params) -> Check:
        """Compare the outputs with the problem's own higher-precision answer."""

    def library(self, name: str) -> Launcher:
        """A library reference by name. Raises LadderError where the problem has none of that name."""
        raise LadderError(f"the problem has no library reference {name!r}")

    def use_beta(self, beta: float) -> None:
        """Make launches and the check from here on use `beta`, where the problem has one."""

    def observations(self, params: Params) -> dict[tuple[str, str], float]:
        """Numbers the last launch wrote about itself, by metric and unit: rows of metrics.csv."""
        return {}

    def add_buffer(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Allocate one buffer more. Raises OutOfDeviceMemory."""
        size = math.prod(shape) * ELEMENT_BYTES[dtype]
        guarded = self.gpu.allocate(size + 2 * _GUARD_BYTES)
        guarded.fill(_GUARD, stream=self.gpu.stream)
        self.pointers[name] = int(guarded.handle) + _GUARD_BYTES
        buffer = Buffer.from_handle(self.pointers[name], size, owner=guarded)
        self.tensors[name] = Tensor(buffer, shape, dtype, guarded)

    def draw(self, name: str, seed: int) -> None:
        """Enqueue random numbers for all of a buffer: uniform in [-1, 1), as int32 in [-1000, 1000)."""
        tensor = self.tensors[name]
        entry, count = f"fill_uniform<{C_TYPES[tensor.dtype]}>", math.prod(tensor.shape)
        self.gpu.harness.run(entry, count, self.pointers[name], count, ctypes.c_ulonglong(seed))
        self._drawn[name] = seed

    def damage(self) -> tuple[str, str] | None:
        """(status, reason) where launches wrote what they must not: words around a buffer, or an input."""
        harness = self.gpu.harness
        for name, tensor in self.tensors.items():
            for behind, address, size in tensor.guards():
                given = (address, size, ctypes.c_int32(_GUARD), ctypes.c_int32(behind))
                nearest, count = harness.reduce(GUARD, size, harness.maximum, harness.count, *given)
                if count:
                    at = size - int(nearest)
                    place = f"{at} bytes behind the end" if behind else f"{at + 1} bytes before the start"
                    return "out_of_bounds", f"{count} bytes around {name} were written, the nearest {place}"
        for name, seed in self._drawn.items():
            tensor = self.tensors[name]
            count = math.prod(tensor.shape)
            entry, drawn = f"count_changed<{C_TYPES[tensor.dtype]}>", ctypes.c_ulonglong(seed)
            _, changed = harness.reduce(entry, count, harness.count, self.pointers[name], count, drawn)
            if changed:
                return "incorrect", f"{changed} of {count} elements of the input {name} were written"
        return None

    def close(self) -> None:
        """Free the buffers."""
        for tensor in self.tensors.values():
            tensor.buffer.close()
            tensor.guarded.close(self.gpu.stream)
        self.tensors = {}


Maker = Callable[[Gpu, Mapping[str, int], str, str], Instance]
