"""Runs the PTX of a problem's checking kernels on the CPU. A block has one row."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
from compiling import compile_ptx

from emulator.ptx import Memory, Program, parse
from emulator.tensor_ptx import TensorMachine


@functools.cache
def check_program(source: Path, entry: str, include: Path) -> Program:
    """One entry of several."""
    ptx = compile_ptx(source, entry, [include])
    parts = re.findall(r"\.entry \w+\(.*?\n\}\n", ptx, re.DOTALL)
    name = entry.split("<")[0]
    (text,) = (part for part in parts if name in part.split("(")[0])
    return parse(text, 0)


class CheckMachine(TensorMachine):
    """Threads of launches of `blocks` blocks, one for each of `arguments`."""

    def __init__(
        self, program: Program, memory: Memory, blocks: int, *arguments: list[int]
    ) -> None:
        super().__init__(program, memory, 256, [blocks] * len(arguments), arguments)
        self.registers["%nctaid.x"] = np.full(self.count, blocks, np.uint32)
