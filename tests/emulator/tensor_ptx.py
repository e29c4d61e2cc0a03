"""Runs the PTX of a tensor-core kernel on the CPU: Machine with cp.async, ldmatrix, mma, WMMA and 16-bit numbers.

A copy of cp.async lands when its thread waits for its group, or at once (`landing`): a kernel must be right either way.
What lanes of a warp write for each other needs a barrier of the block or of the warp in between, and so does what they
read and others overwrite. Fragments of mma lie as PTX ISA 9.0, 9.7.15.5 says; those of WMMA are unspecified, so here
they lie as no hardware has them. Sums are fp64 within an instruction and rounded once to the accumulator's type.
With `notes` a machine collects `accesses`: what the bank model says of each access to shared memory by a whole warp.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from compiling import compile_ptx
from ladder.build.banks import BANKS, matrix_wavefronts, wavefronts

from emulator.ptx import UNSET, Act, Array, Fault, Instruction, Machine, Program, parse

_ROW = 4 * BANKS  # bytes
_HALVES = ("u16", "b16", "s16")
_NOTED = re.compile(r"(ld|st)\.shared\.|(ld|st)matrix\.|cp\.async\.c[ag]\.")
_EXTERN = re.compile(r"\.extern \.shared \.align (\d+) \.b8 (\w+)\[\];")
_ANY = re.compile(
    r"\{\s*\.reg \.pred\s+%p1;\s*\.reg \.pred\s+%p2;\s*(setp\.ne\.u32\s+)%p1(.*?bar\.red\.or\.pred\s+)%p2, 0, %p1;"
    r"(\s*selp\.u32\s+%r\d+, 1, 0, )%p2;\s*\}",
    re.DOTALL,
)
"""What __syncthreads_or becomes, with registers of its own."""
_BRACES = re.compile(r"\{\s*([a-z][\w.]*\s[^{};]*(?:\{[^{}]*\}[^{};]*)*;)\s*\}")


@functools.lru_cache(maxsize=32)
def parse_tensor(text: str, dynamic_bytes: int) -> Program:
    """The one entry of a PTX module that has `dynamic_bytes` of dynamic shared memory."""
    text = _ANY.sub(r"\1%given\2%anyone, 0, %given;\3%anyone;", text)
    program = parse(_BRACES.sub(r"\1", text))
    begin = program.shared_bytes
    for alignment, _ in _EXTERN.findall(text):
        begin = -(-begin // int(alignment)) * int(alignment)
    dynamic = {name: begin for _, name in _EXTERN.findall(text)}
    return dataclasses.replace(
        program, shared=program.shared | dynamic, shared_bytes=begin + dynamic_bytes
    )


@functools.cache
def compiled_program(
    source: Path, entry: str, include: Path, dynamic_bytes: int
) -> Program:
    """The program of a kernel's source, compiled once per test process."""
    return parse_tensor(compile_ptx(source, entry, [include]), dynamic_bytes)


HALVES = ("bf16", "fp16", "fp16_acc16", "f16")
"""Types of 16 bits, as the package names them, and "f16" as PTX does."""


def to_bits(values: Array, element: str) -> Array:
    """Bits of fp32 values in one of `HALVES`, rounded to nearest even."""
    assert element in HALVES, element
    if element != "bf16":
        return values.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def from_bits(bits: Array, element: str) -> Array:
    """fp32 values of bits of one of `HALVES`."""
    assert element in HALVES, element
    bits = np.ascontiguousarray(bits, np.uint16)
    if element != "bf16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


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
    _, *modifiers = step.opcode.split(".")
    vector = 1
    for modifier in modifiers:
        if modifier in ("v2", "v4"):
            vector = int(modifier[1])
    return vector * int(modifiers[-1][1:]) // 8


class TensorMachine(Machine):
    """Threads of some launches, whose copies land at the `wait` or at `once`."""

    def __init__(self, *launch: Any, landing: str = "wait") -> None:
        super().__init__(*launch)
        self.landing = landing
        self.open: list[tuple[Array, Array, Array]] = []
        self.groups: list[list[tuple[Array, Array, Array]]] = []
        self.warp_barriers = np.zeros(self.count // 32, np.int64)
        self.written_in_warp = np.full(self.shared.shape, -1, np.int32)
        # Who read a shared word last (of several threads one) and between which barriers.
        self.reader = np.full(self.shared.shape, -1, np.int32)
        self.read = np.full(self.shared.shape, -1, np.int32)
        self.read_in_warp = np.full(self.shared.shape, -1, np.int32)
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
        opcode = step.opcode
        operands = step.operands
        name, *modifiers = opcode.split(".")
        kind = modifiers[-1] if modifiers else ""
        to, *others = operands or ("",)
        if opcode == "fma.rn.f32":
            return self._sets(
                to,
                lambda left, right, add: (
                    np.multiply(left, right, dtype=np.float64) + add
                ).astype(np.float32),
                others,
                ["f32"] * 3,
            )
        if name in ("ld", "st") and kind in _HALVES:
            return self._move_halves(name, modifiers, operands)
        if opcode == "bar.warp.sync":
            return self._warp_barrier
        if name == "cp":
            return partial(self._copy, opcode, operands)
        if name == "ldmatrix":
            return partial(
                self._load_matrices, operands, transposed="trans" in modifiers
            )
        if name == "mma":
            return partial(self._multiply, modifiers, operands)
        if name == "wmma":
            return partial(self._wmma, modifiers, operands)
        if name == "mov" and "{" in to + others[0]:
            return self._move_parts(to, others[0], kind)
        if opcode in (
            "ex2.approx.f32",
            "ex2.approx.ftz.f32",
            "lg2.approx.f32",
            "rcp.rn.f32",
        ):
            functions = {"ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal}
            function = functions[name]

            def approximate(given: Array) -> Array:
                exact = function(given.astype(np.float64))
                exact[(exact < 2.0**-126) & ("ftz" in modifiers)] = 0
                return np.asarray(exact.astype(np.float32))

            return self._sets(to, approximate, others, ["f32"])
        if name in ("neg", "abs"):
            return self._sets(
                to, np.negative if name == "neg" else np.abs, others, [kind]
            )
        if opcode == "vote.sync.any.pred":
            return partial(self._vote, operands)
        if name == "not":
            return self._sets(to, np.invert, others, [kind])
        if opcode == "bfi.b32":

            def insert(new: Array, old: Array, at: Array, width: Array) -> Array:
                field = (
                    (np.uint64(1) << width.astype(np.uint64)) - np.uint64(1)
                ) << at.astype(np.uint64)
                return np.asarray(
                    (old & ~field | new.astype(np.uint64) << at & field).astype(
                        np.uint32
                    )
                )

            return self._sets(to, insert, others, ["u32"] * 4)
        if opcode == "prmt.b32":

            def permute(low: Array, high: Array, chosen: Array) -> Array:
                both = low | high.astype(np.uint64) << np.uint64(32)
                eight = np.uint64(8)
                places = (
                    chosen.astype(np.uint64) >> np.uint64(4 * at) & np.uint64(7)
                    for at in range(4)
                )
                taken = (both >> eight * place & np.uint64(255) for place in places)
                found = sum(
                    (byte << np.uint64(8 * at) for at, byte in enumerate(taken)),
                    np.uint64(0),
                )
                return np.asarray(found).astype(np.uint32)

            return self._sets(to, permute, others, ["u32"] * 3)
        if opcode in ("div.s32", "rem.s32", "div.u32", "rem.u32"):

            def divide(left: Array, right: Array) -> Array:
                left = left.astype(np.int64)
                right = right.astype(np.int64)
                quotient = np.trunc(left / np.where(right == 0, 1, right)).astype(
                    np.int64
                )
                result = quotient if name == "div" else left - quotient * right
                return np.asarray(
                    result.astype(np.int32 if kind == "s32" else np.uint32)
                )

            return self._sets(to, divide, others, [kind] * 2)
        if name == "cvt" and "16" in "".join(modifiers):
            return self._convert(modifiers, to, others)
        return super()._decode(step)

    def _move_parts(self, to: str, source: str, kind: str) -> Act:
        """Of two registers of half the width one, or the other way."""
        bits = int(kind[1:]) // 2
        if "{" in source:
            parts = re.findall(r"%\w+", source)
            sort = np.uint64 if bits == 32 else np.uint32
            return self._sets(
                to,
                lambda low, high: low | high.astype(sort) << sort(bits),
                parts,
                [f"b{bits}"] * 2,
            )
        value = self._value(source, kind)
        half = np.uint32 if bits == 32 else np.uint16

        def split(mask: Array) -> None:
            for place, part in enumerate(re.findall(r"%\w+", to)):
                self._set(
                    part, (value >> value.dtype.type(bits * place)).astype(half), mask
                )

        return split

    def _vote(self, operands: tuple[str, ...], mask: Array) -> None:
        self._refuse_parts_of_warps(operands[2], mask)
        lanes = self._value(operands[1], "pred").reshape(-1, 32)
        self._set(operands[0], lanes.any(axis=1).repeat(32), mask)

    def _warp_barrier(self, mask: Array) -> None:
        warps = mask.reshape(-1, 32)
        if (warps.any(axis=1) != warps.all(axis=1)).any():
            raise Fault("a barrier that not all lanes of a warp reach")
        self.warp_barriers[warps.all(axis=1)] += 1

    def _convert(self, modifiers: list[str], to: str, operands: list[str]) -> Act:
        *_, target, source = modifiers
        if target in ("f16", "bf16") and source == "f32":
            return self._sets(
                to, lambda values: to_bits(values, target), operands, ["f32"]
            )
        if target == "f32" and source in ("f16", "bf16"):
            return self._sets(
                to, lambda bits: from_bits(bits, source), operands, ["b16"]
            )
        if (target, source) in (("u16", "u32"), ("u32", "u16"), ("u16", "u64")):
            whole = {"u16": np.uint16, "u32": np.uint32}[target]
            return self._sets(to, lambda value: value.astype(whole), operands, [source])
        raise NotImplementedError(f"cvt.{'.'.join(modifiers)}")

    def _move_halves(
        self, name: str, modifiers: list[str], operands: tuple[str, ...]
    ) -> Act:
        """16-bit loads and stores, by way of the words they are part of."""
        place, data = operands[::-1] if name == "ld" else operands
        (base, offset), names = self._place(place), re.findall(r"%\w+", data)
        access = self._global if modifiers[0] == "global" else self._in_shared
        registers = [
            self._register(one, 2) if name == "ld" else self._value(one, "u16")
            for one in names
        ]

        def move(mask: Array) -> None:
            thread = np.flatnonzero(mask)
            at = base[thread].astype(np.int64) + offset
            if (at % (2 * len(registers))).any():
                raise Fault(f"{name}.{'.'.join(modifiers)}: misaligned address")
            for place, register in enumerate(registers):
                byte = at + 2 * place
                if name == "ld":
                    word = access(byte // 4, None, thread)
                    assert word is not None
                    register[thread] = (
                        word >> (8 * (byte % 4)).astype(np.uint32) & 0xFFFF
                    )
                elif modifiers[0] == "global":
                    # For the bounds.
                    access(byte // 4, self.memory.words[byte // 4], thread)
                    self.memory.words.view(np.uint16)[byte // 2] = register[thread]
                else:
                    block = self.block[thread]
                    # For the bounds, and races.
                    access(byte // 4, self.shared[block, byte // 4], thread)
                    self.shared.view(np.uint16)[block, byte // 2] = register[thread]

        return move

    def _ordered(
        self, last: Array, barrier: Array, in_warp: Array, block: Array, thread: Array
    ) -> bool:
        """Whether a barrier of block or warp lies between the access of thread `last` to each word and this one."""
        by_block = (last == thread) | (barrier < self.barriers[block])
        by_warp = (last // 32 == thread // 32) & (
            in_warp < self.warp_barriers[thread // 32]
        )
        return bool((by_block | by_warp).all())

    def _in_shared(
        self, word: Array, value: Array | None, thread: Array
    ) -> Array | None:
        block = self.block[thread]
        if ((word < 0) | (word >= self.program.shared_bytes // 4)).any():
            raise Fault("an access outside of shared memory")
        if value is None:
            at = block * self.shared.shape[1] + word
            since = self.written.take(at), self.written_in_warp.take(at)
            if not self._ordered(self.writer.take(at), *since, block, thread):
                raise Fault(
                    "shared memory is read before the barrier that follows its writing"
                )
            self.reader.put(at, thread)
            self.read.put(at, self.barriers[block])
            self.read_in_warp.put(at, self.warp_barriers[thread // 32])
            return self.shared.take(at)
        self._write_shared(block, word, value, thread)
        return None

    def _write_shared(
        self, block: Array, word: Array, value: Array, thread: Array
    ) -> None:
        at = block * self.shared.shape[1] + word
        since = self.read.take(at), self.read_in_warp.take(at)
        if not self._ordered(self.reader.take(at), *since, block, thread):
            raise Fault(
                "shared memory is overwritten before the barrier that follows its reading"
            )
        self.shared.put(at, value)
        self.writer.put(at, thread)
        self.written.put(at, self.barriers[block])
        self.written_in_warp.put(at, self.warp_barriers[thread // 32])

    # cp.async.

    def _copy(self, opcode: str, operands: tuple[str, ...], mask: Array) -> None:
        # All threads of a block copy, commit and wait together in these kernels, and launches alike.
        if opcode == "cp.async.commit_group":
            self.groups.append(self.open)
            self.open = []
        elif opcode == "cp.async.wait_group":
            pending = int(operands[0])
            landed = self.groups[: len(self.groups) - pending]
            self.groups = self.groups[max(0, len(self.groups) - pending) :]
            for group in landed:
                for copy in group:
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
            words[:, reads] = self._global(
                source[reads] // 4 + np.arange(whole // 4)[:, None], None, thread[reads]
            )
            copy = (thread, to // 4, words)
            if self.landing == "once":
                self._land(*copy)
            else:
                self.open.append(copy)

    def _land(self, thread: Array, word: Array, values: Array) -> None:
        if ((word < 0) | (word + len(values) > self.program.shared_bytes // 4)).any():
            raise Fault("a copy outside of shared memory")
        self._write_shared(
            self.block[thread], word + np.arange(len(values))[:, None], values, thread
        )

    # Matrices of a warp.

    def _whole_warps(self, mask: Array) -> Array:
        warps = mask.reshape(-1, 32)
        if (warps.any(axis=1) != warps.all(axis=1)).any():
            raise Fault("an instruction of a warp that not all lanes reach")
        return np.flatnonzero(warps.all(axis=1))

    def _load_matrices(
        self, operands: tuple[str, ...], mask: Array, *, transposed: bool
    ) -> None:
        self._whole_warps(mask)
        registers = re.findall(r"%\w+", operands[0])
        thread = np.flatnonzero(mask)
        address = self._address(operands[1]).reshape(-1, 32)
        if (address.reshape(-1)[mask] % 16).any():
            raise Fault("ldmatrix: misaligned row")
        for matrix, register in enumerate(registers):
            rows = address[:, 8 * matrix : 8 * matrix + 8]
            if transposed:
                halves = []
                for part in range(2):
                    row = rows[:, self.lane[:32] % 4 * 2 + part]
                    byte = (row + self.lane[:32] // 4 * 2).reshape(-1)[mask]
                    word = self._in_shared(byte // 4, None, thread)
                    assert word is not None
                    halves.append(word >> (8 * (byte % 4)).astype(np.uint32) & 0xFFFF)
                loaded = halves[0] | halves[1] << 16
            else:
                byte = (rows[:, self.lane[:32] // 4] + self.lane[:32] % 4 * 4).reshape(
                    -1
                )[mask]
                loaded = self._in_shared(byte // 4, None, thread)
            self._register(register, 4)[thread] = loaded

    def _elements(self, operand: str, element: str) -> Array:
        """Values of a group of 32-bit registers: warp x lane x value."""
        words = np.stack(
            [self._value(one, "b32") for one in re.findall(r"%\w+", operand)], axis=-1
        )
        if element in ("f16", "bf16"):
            values = from_bits(np.ascontiguousarray(words).view(np.uint16), element)
        else:
            keep = 0xFFFFE000 if element == "tf32" else 0xFFFFFFFF
            values = np.ascontiguousarray(words & np.uint32(keep)).view(np.float32)
        return values.reshape(self.count // 32, 32, -1).astype(np.float64)

    def _put_sums(self, operand: str, values: Array, element: str, mask: Array) -> None:
        flat = values.reshape(self.count, -1).astype(np.float32)
        registers = re.findall(r"%\w+", operand)
        for place, register in enumerate(registers):
            if element == "f32":
                self._set(register, np.ascontiguousarray(flat[:, place]), mask)
            else:
                low, high = (
                    to_bits(flat[:, 2 * place + part], "f16").astype(np.uint32)
                    for part in range(2)
                )
                self._set(register, low | high << 16, mask)

    def _multiply(
        self, modifiers: list[str], operands: tuple[str, ...], mask: Array
    ) -> None:
        self._whole_warps(mask)
        target, left, *_, sums = modifiers[-4:]
        per_word = 1 if left == "tf32" else 2
        depth = 8 * per_word
        lane = np.arange(32)
        warps = self.count // 32
        a = np.zeros((warps, 16, depth))
        b = np.zeros((warps, depth, 8))
        for value, given in enumerate(
            np.moveaxis(self._elements(operands[1], left), -1, 0)
        ):
            word, part = divmod(value, per_word)
            row = lane // 4 + word % 2 * 8
            a[:, row, lane % 4 * per_word + part + word // 2 * depth // 2] = given
        for value, given in enumerate(
            np.moveaxis(self._elements(operands[2], left), -1, 0)
        ):
            word, part = divmod(value, per_word)
            b[:, lane % 4 * per_word + part + word * depth // 2, lane // 4] = given
        product = a @ b
        values = np.arange(4)
        row = lane[:, None] // 4 + values // 2 * 8
        column = lane[:, None] % 4 * 2 + values % 2
        self._put_sums(
            operands[0],
            product[:, row, column] + self._elements(operands[3], sums),
            target,
            mask,
        )

    def _wmma(
        self, modifiers: list[str], operands: tuple[str, ...], mask: Array
    ) -> None:
        self._whole_warps(mask)
        if modifiers[0] == "mma":
            self._multiply_fragments(modifiers, operands, mask)
            return
        stores = modifiers[0] == "store"
        place, pitch = (
            (operands[0], operands[2]) if stores else (operands[1], operands[2])
        )
        address = self._address(place).reshape(-1, 32)
        thread = np.flatnonzero(mask)
        stride = self._value(pitch, "u32").reshape(-1, 32).astype(np.int64)
        if (address != address[:, :1]).any() or (stride != stride[:, :1]).any():
            raise Fault("a WMMA access whose lanes disagree")
        element = modifiers[-1]
        width = 4 if element in ("f32", "tf32") else 2
        if (address % 32).any() or (stride * width % 16).any():
            raise Fault("a WMMA access of a misaligned matrix")
        rows, columns = (16, 16) if stores else self._extent(modifiers[1], element)
        per_lane = rows * columns // 32
        index = self._places(per_lane)
        byte = (
            address[:, :, None]
            + (index // columns * stride[:, :, None] + index % columns) * width
        )
        registers = re.findall(r"%\w+", operands[1] if stores else operands[0])
        for word in range(per_lane * width // 4):
            at = byte[:, :, word * 4 // width].reshape(-1)[mask] // 4
            if stores:
                self._in_shared(at, self._value(registers[word], "b32")[mask], thread)
            else:
                self._register(registers[word], 4)[thread] = self._in_shared(
                    at, None, thread
                )
        for register in registers[per_lane * width // 4 :]:
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
