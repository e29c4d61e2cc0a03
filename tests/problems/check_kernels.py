"""A kernel of a problem's check.cu behind a timed launch, by the emulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from emulator.check_ptx import CheckMachine, check_program
from emulator.inputs import drawn
from emulator.ptx import Array, Memory
from ladder.gpu.device import _mixed
from ladder.model.folders import PACKAGE

KEY, SECRET = 0x0123_4567_89AB_CDEF, 0x5EC_2E7


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
