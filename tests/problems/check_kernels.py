"""Kernels of a problem's check.cu, by the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from emulator.check_ptx import CheckMachine, check_program
from emulator.inputs import drawn
from emulator.ptx import Array, Memory
from ladder.gpu.device import CheckResultSlot, _mixed
from ladder.model.folders import PACKAGE

KEY, SECRET = 0x0123_4567_89AB_CDEF, 0x5EC_2E7


class EmulatedHarness:
    """Runs a problem's checking kernels on the CPU as Harness does on a GPU."""

    def __init__(self, problem: str) -> None:
        self.source = PACKAGE / "problems" / problem / "check.cu"
        self.memory = Memory()
        self.maximum = self.allocate(16)
        self.count = self.maximum + 8

    def allocate(self, size: int) -> int:
        """Address of a buffer of `size` bytes, of which whole words exist."""
        place = self.memory.buffer(0, np.zeros(-(-size // 4), np.uint32), writable=True)
        self.memory.readable = self.memory.writable.copy()
        return place

    def zero(self, place: int, size: int) -> None:
        self.view(place, size, np.uint8)[:] = 0

    def view(self, place: int, count: int, kind: Any) -> Array:
        return np.asarray(
            self.memory.words.view(kind)[place // np.dtype(kind).itemsize :][:count]
        )

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        given: list[int] = []
        for one in arguments:
            if isinstance(one, CheckResultSlot):
                given += [one.running, one.result, one.key]
            elif isinstance(one, float):
                given.append(int(np.float64(one).view(np.uint64)))
            else:
                given.append(getattr(one, "value", one))
        program = check_program(self.source, entry, PACKAGE / "gpu")
        CheckMachine(program, self.memory, max(1, -(-elements // 256)), given).run()

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        self.zero(self.maximum, 16)
        self.run(entry, elements, *arguments)
        (largest,) = self.view(self.maximum, 1, np.float64)
        return float(largest), int(self.view(self.count, 1, np.uint64)[0])


def matrix(
    dtype: str, rows: int, columns: int, kind: str = "uniform", key: int = KEY
) -> Array:
    """Bits of the matrix that is drawn, in fp32 or bf16."""
    elements = drawn(dtype, rows * columns, key, kind)
    return (elements.view(np.uint32) if dtype == "fp32" else elements).reshape(
        rows, columns
    )


def inspected(
    problem: str, entry: str, buffers: Sequence[Array], *numbers: int, blocks: int = 2
) -> float:
    """The error that it leaves in its slot, whose tag must be right; it takes buffers and then numbers."""
    memory = Memory()
    running = memory.buffer(0, np.zeros(8, np.uint32), writable=True)
    result = memory.buffer(0, np.zeros(4, np.uint32), writable=True)
    places = [memory.buffer(0, words(given), writable=False) for given in buffers]
    memory.readable[: places[0] // 4] = 0
    source = PACKAGE / "problems" / problem / "check.cu"
    program = check_program(source, entry, PACKAGE / "gpu")
    arguments = [running, result, SECRET, *places, *numbers]
    CheckMachine(program, memory, blocks, arguments).run()
    error, tag = memory.words[result // 4 :][:4].view(np.uint64)
    assert int(tag) == _mixed(SECRET, int(error))
    return float(error.view(np.float64))


def words(elements: Array) -> Array:
    """Of an array in row-major order; one of an odd number of halves has one more."""
    bits = np.ascontiguousarray(elements).reshape(-1)
    if bits.nbytes % 4:
        bits = np.append(bits, bits[:1])
    return bits.view(np.uint32)
