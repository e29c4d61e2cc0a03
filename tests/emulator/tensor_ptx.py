"""Runs the PTX of a tensor-core kernel on the CPU: Machine with cp.async, ldmatrix, mma and WMMA.

A copy of cp.async lands when its thread waits for its group, or at once (`landing`): a kernel must be right either way.
What threads write to shared memory for each other needs a barrier of the block in between, or of the warp within one,
and so does what they read and others overwrite. Fragments of mma lie as PTX ISA 9.0, 9.7.15.5 says; those of WMMA are
unspecified, so here they lie as no hardware has them. Sums are fp64 within an instruction and rounded once to the
accumulator's type. With `notes` a machine collects `accesses`: what the bank model says of each access to shared
memory by a whole warp.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from compiling import compile_ptx
from ladder.build.banks import BANKS, matrix_wavefronts, wavefronts

from emulator.formats import HALVES, from_bits, to_bits
from emulator.ptx import (
    UNSET,
    Act,
    Array,
    Fault,
    Instruction,
    Machine,
    Program,
    parse,
    registers_in,
)

_ROW = 4 * BANKS  # bytes
_NOTED = re.compile(r"(ld|st)\.shared\.|(ld|st)matrix\.|cp\.async\.c[ag]\.")


@functools.cache
def compiled_program(
    source: Path, entry: str, include: Path, dynamic_bytes: int
) -> Program:
    """The program of a kernel's source, compiled once per test process."""
    return parse(compile_ptx(source, entry, [include]), dynamic_bytes)


@dataclass
class Groups:
    """Asynchronous work that has not been done: what was started since the last commit, and committed groups of it."""

    started: list[Any] = field(default_factory=list)
    committed: list[list[Any]] = field(default_factory=list)

    def commit(self) -> None:
        self.committed.append(self.started)
        self.started = []

    def wait(self, pending: int) -> list[Any]:
        """What is done where at most `pending` groups stay, in its order."""
        done = max(0, len(self.committed) - pending)
        ended = self.committed[:done]
        self.committed = self.committed[done:]
        return [one for group in ended for one in group]


@functools.cache
def _wavefronts(offsets: tuple[int, ...], width: int, merges: bool) -> int:
    return wavefronts(offsets, width, merges)


def wavefronts_of(offsets: list[int], width: int, merges: bool) -> int:
    """Of an access of the first warp. A row of all banks more or less changes nothing, and loops repeat the rest."""
    row = min(offsets) // _ROW * _ROW
    return _wavefronts(tuple([one - row for one in offsets]), width, merges)


def width_of(step: Instruction) -> int:
    """Bytes that a lane loads, stores or copies."""
    if step.opcode.startswith("cp"):
        return int(step.operands[2])
    *_, vector, kind = step.opcode.split(".")
    count = int(vector[1:]) if vector in ("v2", "v4") else 1
    return count * int(kind[1:]) // 8


class TensorMachine(Machine):
    """Threads of some launches, whose copies land at the `wait` or at `once`."""

    def __init__(self, *launch: Any, landing: str = "wait") -> None:
        super().__init__(*launch)
        self.landing = landing
        # Copies: threads, first words, and what is copied.
        self.copies = Groups()
        self.warp_barriers = np.zeros(self.count // 32, np.int64)
        # Who wrote a shared word, and between which barriers of the block and of the warp.
        self.writer, self.written, self.written_in_warp = (
            np.full(self.shared.shape, -1, np.int32) for _ in range(3)
        )
        # Who read it last (of several threads one), in the same way.
        self.reader, self.read, self.read_in_warp = (
            np.full(self.shared.shape, -1, np.int32) for _ in range(3)
        )
        self.lane = np.arange(self.count) % 32
        self.notes = False
        # Opcode, lowest address and wavefronts of a warp: all warps have the same layout.
        self.accesses: list[tuple[str, int, int]] = []

    def _act_of(self, step: Instruction) -> Act:
        act = super()._act_of(step)
        if self.notes and _NOTED.match(step.opcode):
            return partial(self._noted, step, act)
        return act

    def _noted(self, step: Instruction, act: Act, mask: Array) -> None:
        """Notes the access of the first whole warp, and carries it out."""
        whole = mask.reshape(-1, 32).all(axis=1)
        loads = step.opcode.startswith("ld")
        if whole.any():
            first = 32 * int(whole.argmax())
            address = self._address(step.operands[int(loads)])
            offsets = address[first : first + 32].tolist()
            if "matrix" in step.opcode:
                count = matrix_wavefronts(offsets)
            else:
                count = wavefronts_of(offsets, width_of(step), loads)
            self.accesses.append((step.opcode, min(offsets), count))
        act(mask)

    # Instructions.

    def _decode(self, step: Instruction) -> Act:
        operands = step.operands
        name, *modifiers = step.opcode.split(".")
        if step.opcode == "bar.warp.sync":
            return self._warp_barrier
        if name == "cp":
            return partial(self._copy, step.opcode, operands)
        if name == "ldmatrix":
            return partial(
                self._load_matrices, operands, transposed="trans" in modifiers
            )
        if name == "mma":
            return partial(self._multiply, modifiers, operands)
        if name == "wmma":
            return partial(self._wmma, modifiers, operands)
        return super()._decode(step)

    def _warp_barrier(self, mask: Array) -> None:
        what = "a barrier that not all lanes of a warp reach"
        self.warp_barriers[self._whole(mask, 32, what)] += 1

    def _ordered(
        self, last: Array, barrier: Array, in_warp: Array, block: Array, thread: Array
    ) -> bool:
        """Whether a barrier of block or warp lies between the access of thread `last` to each word and this one."""
        by_block = (last == thread) | (barrier < self.barriers[block])
        by_warp = (last // 32 == thread // 32) & (
            in_warp < self.warp_barriers[thread // 32]
        )
        return bool((by_block | by_warp).all())

    def _check_shared(self, word: Array, thread: Array, *, writes: bool) -> None:
        super()._check_shared(word, thread, writes=writes)
        block = self.block[thread]
        at = block * self.shared.shape[1] + word
        written = self.writer, self.written, self.written_in_warp
        read = self.reader, self.read, self.read_in_warp
        before, now = (read, written) if writes else (written, read)
        last, barrier, in_warp = (one.take(at) for one in before)
        if not self._ordered(last, barrier, in_warp, block, thread):
            done, earlier = (
                ("overwritten", "reading") if writes else ("read", "writing")
            )
            raise Fault(
                f"shared memory is {done} before the barrier that follows its {earlier}"
            )
        who, between, in_warp = now
        who.put(at, thread)
        between.put(at, self.barriers[block])
        in_warp.put(at, self.warp_barriers[thread // 32])

    # cp.async.

    def _copy(self, opcode: str, operands: tuple[str, ...], mask: Array) -> None:
        # All threads of a block copy, commit and wait together in these kernels, and launches alike.
        if opcode == "cp.async.commit_group":
            self.copies.commit()
        elif opcode == "cp.async.wait_group":
            for copy in self.copies.wait(int(operands[0])):
                self._land(*copy)
        elif mask.any():
            to, source = (self._address(one)[mask] for one in operands[:2])
            whole = int(operands[2])
            size = self._value(operands[3], "u32")[mask]
            if (
                (to % whole).any()
                or (source % whole).any()
                or (~np.isin(size, (0, whole))).any()
            ):
                raise Fault("cp.async: misaligned address or a part of a chunk")
            thread = np.flatnonzero(mask)
            words = np.zeros((whole // 4, len(to)), np.uint32)
            reads = size == whole
            taken = source[reads] // 4 + np.arange(whole // 4)[:, None]
            self._check_global(taken, thread[reads], writes=False)
            words[:, reads] = self.memory.words[taken]
            copy = (thread, to // 4, words)
            if self.landing == "once":
                self._land(*copy)
            else:
                self.copies.started.append(copy)

    def _land(self, thread: Array, word: Array, values: Array) -> None:
        self._in_shared(word + np.arange(len(values))[:, None], values, thread)

    # Matrices of a warp.

    def _whole_warps(self, mask: Array) -> Array:
        """Threads of the warps that carry out an instruction."""
        self._whole(mask, 32, "an instruction of a warp that not all lanes reach")
        return np.flatnonzero(mask)

    def _load_matrices(
        self, operands: tuple[str, ...], mask: Array, *, transposed: bool
    ) -> None:
        thread = self._whole_warps(mask)
        lane = self.lane[:32]
        address = self._address(operands[1]).reshape(-1, 32)
        if (address.reshape(-1)[mask] % 16).any():
            raise Fault("ldmatrix: misaligned row")
        for matrix, register in enumerate(registers_in(operands[0])):
            rows = address[:, 8 * matrix : 8 * matrix + 8]
            loaded = self._register(register, 4)
            loaded[thread] = 0
            for part in range(2):
                place = lane // 4, lane % 4 * 2 + part
                row, column = place[::-1] if transposed else place
                byte = (rows[:, row] + 2 * column).reshape(-1)[mask]
                word = self._in_shared(byte // 4, None, thread)
                assert word is not None
                half = word >> (8 * (byte % 4)).astype(np.uint32) & 0xFFFF
                loaded[thread] |= half << 16 * part

    def _elements(self, operand: str, element: str) -> Array:
        """Values of a group of 32-bit registers: warp x lane x value."""
        words = np.stack(
            [self._value(one, "b32") for one in registers_in(operand)], axis=-1
        )
        bits = words.view(np.uint16 if element in HALVES else np.uint32)
        values = from_bits(bits, element).astype(np.float64)
        return values.reshape(self.count // 32, 32, -1)

    def _put_sums(self, operand: str, values: Array, element: str, mask: Array) -> None:
        flat = values.reshape(self.count, -1).astype(np.float32)
        words = to_bits(flat, element).view(np.uint32)
        for register, word in zip(registers_in(operand), words.T, strict=True):
            self._set(register, word, mask)

    def _multiply(
        self, modifiers: list[str], operands: tuple[str, ...], mask: Array
    ) -> None:
        self._whole_warps(mask)
        target, left, *_, sums = modifiers[-4:]
        per_word = 1 if left == "tf32" else 2
        depth = 8 * per_word
        warps = self.count // 32
        lane = np.arange(32)[:, None]
        word, part = np.divmod(np.arange(4 * per_word), per_word)
        row = lane // 4 + word % 2 * 8
        k = lane % 4 * per_word + part
        a = np.zeros((warps, 16, depth))
        a[:, row, k + word // 2 * depth // 2] = self._elements(operands[1], left)
        half = slice(0, 2 * per_word)
        b = np.zeros((warps, depth, 8))
        b[:, (k + word * depth // 2)[:, half], lane // 4] = self._elements(
            operands[2], left
        )
        values = np.arange(4)
        row = lane // 4 + values // 2 * 8
        column = lane % 4 * 2 + values % 2
        product = (a @ b)[:, row, column]
        total = product + self._elements(operands[3], sums)
        self._put_sums(operands[0], total, target, mask)

    def _wmma(
        self, modifiers: list[str], operands: tuple[str, ...], mask: Array
    ) -> None:
        thread = self._whole_warps(mask)
        if modifiers[0] == "mma":
            self._multiply_fragments(modifiers, operands, mask)
            return
        stores = modifiers[0] == "store"
        place, data = operands[:2] if stores else (operands[1], operands[0])
        address = self._address(place).reshape(-1, 32)
        stride = self._value(operands[2], "u32").reshape(-1, 32).astype(np.int64)
        if (address != address[:, :1]).any() or (stride != stride[:, :1]).any():
            raise Fault("a WMMA access whose lanes disagree")
        element = modifiers[-1]
        width = 4 if element in ("f32", "tf32") else 2
        if (address % 32).any() or (stride * width % 16).any():
            raise Fault("a WMMA access of a misaligned matrix")
        rows, columns = (16, 16) if stores else self._extent(modifiers[1], element)
        per_lane = rows * columns // 32
        row, column = np.divmod(self._places(per_lane), columns)
        byte = address[:, :, None] + (row * stride[:, :, None] + column) * width
        registers = registers_in(data)
        words = per_lane * width // 4
        for number, register in enumerate(registers[:words]):
            at = byte[:, :, number * 4 // width].reshape(-1)[mask] // 4
            if stores:
                self._in_shared(at, self._value(register, "b32")[mask], thread)
            else:
                loaded = self._in_shared(at, None, thread)
                self._register(register, 4)[thread] = loaded
        for register in registers[words:]:
            self._register(register, 4)[thread] = UNSET

    @staticmethod
    def _extent(operand: str, element: str) -> tuple[int, int]:
        depth = 8 if element == "tf32" else 16
        return (16, depth) if operand == "a" else (depth, 16)

    @staticmethod
    def _places(per_lane: int) -> Array:
        """Row-major index of every element of a fragment: lane x value. Pairs of neighbours stay together."""
        order = np.random.default_rng(3).permutation(16 * per_lane)
        pairs = order[:, None] * 2 + np.arange(2)
        return pairs.reshape(32, per_lane)

    def _fragment(self, operand: str, element: str, extent: tuple[int, int]) -> Array:
        per_lane = extent[0] * extent[1] // 32
        values = self._elements(operand, element)[:, :, :per_lane]
        whole = np.zeros((self.count // 32, extent[0] * extent[1]))
        whole[:, self._places(per_lane)] = values
        return whole.reshape(-1, *extent)

    def _multiply_fragments(
        self, modifiers: list[str], operands: tuple[str, ...], mask: Array
    ) -> None:
        types = modifiers[modifiers.index("row", modifiers.index("row") + 1) + 2 :]
        element = types[1] if len(types) == 4 else "f16"
        target = types[0]
        sums = types[-1]
        a = self._fragment(operands[1], element, self._extent("a", element))
        b = self._fragment(operands[2], element, self._extent("b", element))
        total = a @ b + self._fragment(operands[3], sums, (16, 16))
        self._put_sums(
            operands[0], total.reshape(-1, 256)[:, self._places(8)], target, mask
        )
