"""Kernels of a problem's check.cu, by the emulator, and instances whose checks are these."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from emulator.check_ptx import CheckMachine, check_program
from emulator.inputs import drawn
from emulator.ptx import Array, Memory
from emulator.tensor_ptx import to_bits
from fake_gpu import FakeBuffer, FakeLibraries
from ladder.gpu.device import CheckResultSlot, _mixed
from ladder.model.folders import PACKAGE

KEY, SECRET = 0x0123_4567_89AB_CDEF, 0x5EC_2E7
ELEMENTS: dict[str, Any] = {"fp32": np.float32, "bf16": np.uint16, "fp8": np.uint8}
"""How elements lie in memory, narrow ones as their bits."""


class EmulatedHarness:
    """Runs a problem's checking kernels on the CPU as Harness does on a GPU.

    `blocks` of a launch, where it is not 0, instead of a thread for each element.
    """

    def __init__(self, problem: str, blocks: int = 0) -> None:
        self.source = PACKAGE / "problems" / problem / "check.cu"
        self.blocks = blocks
        self.memory = Memory()
        self.maximum = self.room(16)
        self.count = self.maximum + 8

    def room(self, size: int, launch: int = 0) -> int:
        """Address of a buffer of `size` bytes, of which whole words exist."""
        zeros = np.zeros(-(-size // 4), np.uint32)
        place = self.memory.buffer(launch, zeros, writable=True)
        self.memory.readable = np.maximum(self.memory.readable, self.memory.writable)
        return place

    def put(self, elements: Array, launch: int = 0) -> int:
        """Address of a buffer that holds elements, and that no kernel may write."""
        return self.memory.buffer(launch, words(elements), writable=False)

    def slot(self, key: int = SECRET, launch: int = 0) -> CheckResultSlot:
        """A place for the result of the check of a timed launch."""
        place = self.room(48, launch)
        return CheckResultSlot(place, place + 32, key)

    def zero(self, place: int, size: int) -> None:
        self.view(place, size, np.uint8)[:] = 0

    def view(self, place: int, count: int, kind: Any) -> Array:
        return np.asarray(
            self.memory.words.view(kind)[place // np.dtype(kind).itemsize :][:count]
        )

    def launch(self, entry: str, blocks: int, *launches: Sequence[Any]) -> None:
        """Launch an entry with the arguments of each launch."""
        program = check_program(self.source, entry, PACKAGE / "gpu")
        given = [_flat(arguments) for arguments in launches]
        CheckMachine(program, self.memory, blocks, *given).run()

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        blocks = self.blocks or max(1, -(-elements // 256))
        self.launch(entry, blocks, arguments)

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        self.zero(self.maximum, 16)
        self.run(entry, elements, *arguments)
        (largest,) = self.view(self.maximum, 1, np.float64)
        return float(largest), int(self.view(self.count, 1, np.uint64)[0])

    def error_at(self, slot: CheckResultSlot) -> float:
        """The error that a check has left at its slot. The tag must be right, and nothing else be left."""
        *running, error, tag = self.view(slot.running, 6, np.uint64)
        assert not any(running)
        assert int(tag) == _mixed(slot.key, int(error))
        return float(error.view(np.float64))


def _flat(arguments: Sequence[Any]) -> list[int]:
    """Arguments as a kernel takes them, 8 bytes each."""
    flat = list[int]()
    for argument in arguments:
        if isinstance(argument, CheckResultSlot):
            flat += [argument.running, argument.result, argument.key]
        elif isinstance(argument, float):
            flat.append(int(np.float64(argument).view(np.uint64)))
        else:
            flat.append(getattr(argument, "value", argument))
    return flat


def words(elements: Array) -> Array:
    """Of an array in row-major order; one of an odd number of halves has one more."""
    bits = np.ascontiguousarray(elements).reshape(-1)
    if bits.nbytes % 4:
        bits = np.append(bits, bits[:1])
    return bits.view(np.uint32)


def matrix(
    dtype: str, rows: int, columns: int, kind: str = "uniform", key: int = KEY
) -> Array:
    """What is drawn: fp32 numbers, or bits of narrow ones."""
    return drawn(dtype, rows * columns, key, kind).reshape(rows, columns)


def inspected(
    problem: str, entry: str, buffers: Sequence[Array], *numbers: Any, blocks: int = 2
) -> float:
    """The error that a check leaves at its slot; it takes buffers and then numbers."""
    on = EmulatedHarness(problem, blocks)
    slot = on.slot()
    on.run(entry, 0, slot, *map(on.put, buffers), *numbers)
    return on.error_at(slot)


def signs(count: int) -> Array:
    """The random signs of a slot, as checks have them."""
    bits = [_mixed(SECRET, at // 32) >> at % 32 & 1 for at in range(count)]
    return 1.0 - 2.0 * np.array(bits)


class EmulatedGpu(EmulatedHarness):
    """A GPU on which an instance finds its memory and its harness."""

    stream = None

    @property
    def harness(self) -> EmulatedGpu:
        return self

    def allocate(self, size: int) -> FakeBuffer:
        return FakeBuffer(size, self.room(size))


class EmulatedProduct:
    """An instance of a GEMM, with or without block scales, whose checks run on the CPU."""

    def __init__(
        self, problem: str, dtype: str, size: tuple[int, int, int], layout: str = "NN"
    ) -> None:
        self.on: Any = EmulatedGpu(problem)
        module = importlib.import_module(f"ladder.problems.{problem}.instance")
        extents = dict(zip("mnk", size, strict=True))
        self.instance = module.INSTANCE(
            FakeLibraries(), self.on, extents, dtype, layout
        )
        # Keys of inputs follow from it, and runs of the emulator are kept for the same inputs.
        self.instance._secret = b"a secret"

    def held(self, name: str) -> Array:
        """Elements of a buffer, of narrow types their bits."""
        tensor = self.instance.tensors[name]
        elements = ELEMENTS[tensor.dtype]
        flat = self.on.view(tensor.pointer, math.prod(tensor.shape), elements)
        return np.asarray(flat.reshape(tensor.shape))

    def write(self, c: Array) -> None:
        single = c.astype(np.float32)
        narrow = self.instance.output != "fp32"
        self.held("c")[:] = to_bits(single, "bf16") if narrow else single

    def inspected(self, params: Mapping[str, int]) -> float:
        """What the check of a timed launch finds."""
        slot = self.on.slot()
        self.instance.inspect(params, slot)
        return float(self.on.error_at(slot))


def emulate_products(patch: pytest.MonkeyPatch, problem: str) -> None:
    """Small guards and shifts, and few spots: blocks of 256 threads each."""
    patch.setattr("ladder.gpu.instance.GUARD_BYTES", 64)
    patch.setattr("ladder.gpu.instance._ROOM", 512)
    patch.setattr(f"ladder.problems.{problem}.instance._SPOTS", 8)
