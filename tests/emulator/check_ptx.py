"""Runs the PTX of a problem's checking kernels on the CPU: TensorMachine with fp64 and atomics. A block has one row."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
from compiling import compile_ptx

from emulator import ptx
from emulator.inputs import e4m3
from emulator.ptx import Array, Instruction, Memory, Program
from emulator.tensor_ptx import TensorMachine, parse_tensor

_PLAIN: dict[str, Any] = {
    "abs.f32": np.abs,
    "abs.f64": np.abs,
    "neg.f64": np.negative,
    "sqrt.rn.f64": np.sqrt,
    "rcp.rn.f64": np.reciprocal,
    "not.b32": np.invert,
}
_PLAIN |= {"not.b64": np.invert, "cvt.f64.f32": np.float64, "cvt.rn.f32.f64": np.float32}
_PLAIN |= {"cvt.rn.f64.s64": np.float64}
_PLAIN |= {"cvt.rzi.f32.f32": np.trunc, "cvt.rzi.s32.f32": np.int32}
_PLAIN["fma.rn.f64"] = lambda a, b, add: a * b + add
ptx._TYPES["f64"], ptx._BITS[1] = np.float64, np.bool_
ptx._COMPARE |= {"num": lambda a, b: (a == a) & (b == b)}
ptx._COMPARE |= {"ltu": lambda a, b: ~(a >= b), "geu": lambda a, b: ~(a < b)}  # or NaN
ptx._COMPARE |= {"gtu": lambda a, b: ~(a <= b), "leu": lambda a, b: ~(a > b)}
ptx._ARITHMETIC |= {"add.rn": np.add, "div.rn": np.divide, "div": np.floor_divide, "rem": np.remainder}


def _cut(x: Array) -> Array:
    """Whole numbers as fp32, rounded towards zero."""
    exact = x.astype(np.float64)
    near = exact.astype(np.float32)
    return np.asarray(np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0)), near))


_PLAIN |= {f"cvt.rz.f32.{kind}32": _cut for kind in "su"}


def _words(structure: re.Match[str]) -> str:
    name, size = structure[1], int(structure[2])
    return ", ".join(f".param .u64 {name}" + (f"_{at}" if at else "") for at in range(0, size, 8))


@functools.cache
def check_program(source: Path, entry: str, include: Path) -> Program:
    """One entry of several. Each 8 bytes of a structure become an argument, and 64-bit accesses two words."""
    parts = re.findall(r"\.entry \w+\(.*?\n\}\n", compile_ptx(source, entry, [include]), re.DOTALL)
    (text,) = (part for part in parts if entry.split("<")[0] in part.split("(")[0])
    text = re.sub(r"\.param \.align 8 \.b8 (\w+)\[(\d+)\]", _words, text)
    text = re.sub(r"\[(\w+_param_\d+)\+(\d+)\]", r"[\1_\2]", text)
    text = re.sub(r"\.f64 (\w+);", r".b8 \1[8];", text)
    text = re.sub(r"\{\s*\.reg \.b32 %temp; *\n(.*;)\s*\}", r"\1", text)  # of exp
    pair = r"mov.b64 \2, {\2l, \2h};\n"
    text = re.sub(
        r"ld(\.global|\.shared)\.[fu]64\s+(%\w+), (.+;)", rf"ld\1.v2.u32 {{\2l, \2h}}, \3\n{pair}", text
    )
    four = r"ld.global.v4.u32 {\1l, \1h, \2l, \2h}, \3\nmov.b64 \1, {\1l, \1h};\n"
    text = re.sub(r"ld\.global\.v2\.f64\s+\{(%\w+), (%\w+)\}, (.+;)", four + pair, text)
    split = r"mov.b64 {%low, %high}, \3;\nst\1.v2.u32 \2, {%low, %high};\n"
    return parse_tensor(re.sub(r"st(\.global|\.shared)\.[fu]64\s+(\[.+\]), (.+);", split, text), 0)


class CheckMachine(TensorMachine):
    """Threads of one launch."""

    def __init__(self, program: Program, memory: Memory, blocks: int, arguments: list[int]) -> None:
        super().__init__(program, memory, 256, [blocks], [arguments])
        self.special["%nctaid.x"] = np.full(self.count, blocks, np.uint32)

    def _value(self, operand: str, kind: str) -> Array:
        if operand.startswith("0d"):
            return np.asarray(int(operand[2:], 16), np.uint64).view(np.float64)
        found = super()._value(operand, kind)
        return found[::2] if found.size == 2 * self.count else found  # the lower half of a wide register

    def _carry_out(self, step: Instruction, mask: Array) -> None:
        name, *modifiers = step.opcode.split(".")
        to, *others = step.operands or ("",)
        kind = modifiers[-1] if modifiers else ""
        if name == "atom":
            self._atomic((*modifiers, *step.operands), mask)
        elif step.opcode in _PLAIN:
            self._set(to, np.asarray(_PLAIN[step.opcode](*(self._value(one, kind) for one in others))), mask)
        elif step.opcode == "cvt.rn.satfinite.e4m3x2.f32":
            high, low = (e4m3(self._everywhere(one, "f32")).astype(np.uint16) for one in others)
            self._set(to, high << 8 | low, mask)
        elif step.opcode == "mul.wide.u16":
            left, right = (self._everywhere(one, "u16").astype(np.uint32) for one in others)
            self._set(to, left * right, mask)
        elif step.opcode == "cvt.u16.u64":
            self._set(to, self._everywhere(others[0], "u64").astype(np.uint16), mask)
        elif name == "prmt":
            low, high = (self._everywhere(one, "u32").astype(np.uint64) for one in others[:2])
            both, chosen = low | high << np.uint64(32), int(others[2], 0)
            taken = (both >> np.uint64(8 * (chosen >> 4 * at & 7)) & np.uint64(255) for at in range(4))
            found = sum((byte << np.uint64(8 * at) for at, byte in enumerate(taken)), np.uint64(0))
            self._set(to, np.asarray(found).astype(np.uint32), mask)
        elif step.opcode == "shfl.sync.down.b32":
            lane, by = np.arange(self.count), self._everywhere(others[1], "u32").astype(np.int64)
            source = np.where(lane % 32 + by < 32, lane + by, lane)
            self._set(to.split("|")[0], self._everywhere(others[0], "b32")[source], mask)
        elif step.opcode == "mov.b64" and "{" in to + others[0]:
            halves = re.findall(r"%\w+", to + others[0])
            if "{" in to:
                for place, half in enumerate(halves[:2]):
                    bits = self._everywhere(others[0], "u64") >> np.uint64(32 * place)
                    self._set(half, bits.astype(np.uint32), mask)
            else:
                low, high = (self._everywhere(half, "u32").astype(np.uint64) for half in halves[1:])
                self._set(to, low | high << np.uint64(32), mask)
        elif step.opcode == "st.global.u8":
            at = np.broadcast_to(self._address(to), self.count)[mask]
            self._global(at // 4, self.memory.words[at // 4], mask)  # for the bounds
            self.memory.words.view(np.uint8)[at] = self._everywhere(others[0], "u16")[mask].astype(np.uint8)
        elif name != "membar":
            super()._carry_out(step, mask)

    def _atomic(self, parts: tuple[str, ...], mask: Array) -> None:
        """One lane after the other. Sets the old value."""
        space, operation, kind, to, place, by = parts
        given, address = self._everywhere(by, kind), np.broadcast_to(self._address(place), self.count)
        old = np.zeros(self.count, given.dtype)
        for lane in np.flatnonzero(mask):
            words = self.memory.words if space == "global" else self.shared[self.block[lane]]
            cell = words[address[lane] // 4 :][: given.itemsize // 4].view(given.dtype)
            old[lane] = cell[0]
            new = {"add": old[lane] + given[lane], "max": max(old[lane], given[lane]), "exch": given[lane]}
            cell[0] = new[operation]
        if to != "_":
            self._set(to, old, mask)
