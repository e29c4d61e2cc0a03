"""Runs the PTX of a problem's checking kernels on the CPU: TensorMachine with fp64 and atomics. A block has one row."""

from __future__ import annotations

import functools
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from compiling import compile_ptx

from emulator.inputs import e4m3_pair, halves_of_pair
from emulator.ptx import Act, Array, Instruction, Memory, Program
from emulator.tensor_ptx import TensorMachine, parse_tensor


def _cut(x: Array) -> Array:
    """Whole numbers as fp32, rounded towards zero."""
    exact = x.astype(np.float64)
    near = exact.astype(np.float32)
    return np.asarray(
        np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0)), near)
    )


_ROUNDED: dict[str, Any] = {
    "cvt.f64.f32": np.float64,
    "cvt.rn.f32.f64": np.float32,
    "cvt.rn.f64.s32": np.float64,
    "cvt.rn.f64.s64": np.float64,
    "cvt.rzi.s32.f32": np.int32,
    "cvt.rz.f32.s32": _cut,
    "cvt.rz.f32.u32": _cut,
}
_PLAIN: dict[str, Any] = {
    "sqrt.rn.f32": np.sqrt,
    "sqrt.rn.f64": np.sqrt,
    "rcp.rn.f64": np.reciprocal,
    "cvt.rzi.f32.f32": np.trunc,
    **_ROUNDED,
}
_TAKEN: dict[str, Any] = {
    "add": np.add.accumulate,
    "max": np.maximum.accumulate,
    "exch": np.asarray,
}
"""What a number in memory becomes by one atomic operation after the other, of the number and what is given."""


def _words(structure: re.Match[str]) -> str:
    name = structure[1]
    size = int(structure[2])
    return ", ".join(
        f".param .u64 {name}" + (f"_{at}" if at else "") for at in range(0, size, 8)
    )


@functools.cache
def check_program(source: Path, entry: str, include: Path) -> Program:
    """One entry of several. Each 8 bytes of a structure become an argument, and 64-bit accesses two words."""
    parts = re.findall(
        r"\.entry \w+\(.*?\n\}\n", compile_ptx(source, entry, [include]), re.DOTALL
    )
    (text,) = (part for part in parts if entry.split("<")[0] in part.split("(")[0])
    text = re.sub(r"\.param \.align 8 \.b8 (\w+)\[(\d+)\]", _words, text)
    text = re.sub(r"\[(\w+_param_\d+)\+(\d+)\]", r"[\1_\2]", text)
    text = re.sub(r"\.f64 (\w+);", r".b8 \1[8];", text)
    text = re.sub(r"\{\s*\.reg \.b32 %temp; *\n(.*;)\s*\}", r"\1", text)  # of exp
    pair = r"mov.b64 \2, {\2l, \2h};\n"
    text = re.sub(
        r"ld(\.global|\.shared)\.[fu]64\s+(%\w+), (.+;)",
        rf"ld\1.v2.u32 {{\2l, \2h}}, \3\n{pair}",
        text,
    )
    four = r"ld.global.v4.u32 {\1l, \1h, \2l, \2h}, \3\nmov.b64 \1, {\1l, \1h};\n"
    text = re.sub(r"ld\.global\.v2\.f64\s+\{(%\w+), (%\w+)\}, (.+;)", four + pair, text)
    split = r"mov.b64 {%low, %high}, \3;\nst\1.v2.u32 \2, {%low, %high};\n"
    return parse_tensor(
        re.sub(r"st(\.global|\.shared)\.[fu]64\s+(\[.+\]), (.+);", split, text), 0
    )


class CheckMachine(TensorMachine):
    """Threads of launches of `blocks` blocks, one for each of `arguments`."""

    def __init__(
        self, program: Program, memory: Memory, blocks: int, *arguments: list[int]
    ) -> None:
        super().__init__(program, memory, 256, [blocks] * len(arguments), arguments)
        self.registers["%nctaid.x"] = np.full(self.count, blocks, np.uint32)

    def _decode(self, step: Instruction) -> Act:
        name, *modifiers = step.opcode.split(".")
        to, *others = step.operands or ("",)
        kind = modifiers[-1] if modifiers else ""
        if name == "atom":
            return partial(self._atomic, modifiers, step.operands)
        if step.opcode in _PLAIN:
            return self._sets(to, _PLAIN[step.opcode], others, [kind])
        if step.opcode == "fma.rn.f64":
            return self._sets(
                to, lambda left, right, add: left * right + add, others, [kind] * 3
            )
        if step.opcode == "cvt.rn.satfinite.e4m3x2.f32":
            return self._sets(to, e4m3_pair, others, ["f32"] * 2)
        if step.opcode == "cvt.rn.f16x2.e4m3x2":
            return self._sets(to, halves_of_pair, others, ["u16"])
        if step.opcode == "mul.wide.u16":
            return self._sets(
                to,
                lambda left, right: left.astype(np.uint32) * right,
                others,
                ["u16"] * 2,
            )
        if step.opcode == "st.global.u8":
            return partial(self._store_byte, step.operands)
        if step.opcode == "ld.global.u8":
            return partial(self._load_byte, step.operands)
        if name == "membar":
            return lambda mask: None
        return super()._decode(step)

    def _load_byte(self, operands: tuple[str, ...], mask: Array) -> None:
        at = self._address(operands[1])[mask]
        self._global(at // 4, None, np.flatnonzero(mask))  # for the bounds
        held = self.memory.words.view(np.uint8)[at].astype(np.uint16)
        self._register(operands[0], 2)[mask] = held

    def _store_byte(self, operands: tuple[str, ...], mask: Array) -> None:
        at = self._address(operands[0])[mask]
        thread = np.flatnonzero(mask)
        self._global(at // 4, self.memory.words[at // 4], thread)  # for the bounds
        self.memory.words.view(np.uint8)[at] = self._value(operands[1], "u16")[
            mask
        ].astype(np.uint8)

    def _atomic(
        self, modifiers: list[str], operands: tuple[str, ...], mask: Array
    ) -> None:
        """One lane after the other. Sets the old value."""
        (space, operation, kind) = modifiers
        (to, place, by) = operands
        given = self._value(by, kind)
        address = self._address(place)
        old = np.zeros(self.count, given.dtype)
        threads = np.flatnonzero(mask)
        block_of = self.block[threads]
        place_of = address[threads]
        for block, at in {*zip(block_of.tolist(), place_of.tolist(), strict=True)}:
            lanes = threads[(place_of == at) & (block_of == block)]
            words = self.memory.words if space == "global" else self.shared[block]
            cell = words[at // 4 :][: given.itemsize // 4].view(given.dtype)
            held = _TAKEN[operation](np.concatenate([cell, given[lanes]]))
            old[lanes] = held[:-1]
            cell[0] = held[-1]
        if to != "_":
            self._set(to, old, mask)
