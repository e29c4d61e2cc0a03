"""Runs the PTX of a kernel on the CPU: all threads of several launches at once, each a lane of NumPy arrays.

The text is what NVRTC makes of the kernel's very source, so bounds, alignment, shuffles and barriers are the kernel's.
Of divided threads those at the smallest address go first, a basic block at a time, so that they meet again.
Raises `Fault` where hardware would fail or give an undefined value, and `NotImplementedError` for an instruction that
the kernels under test do not use. Of races it sees one kind: a read of shared memory before the barrier that follows
its writing. Semantics: PTX ISA 9.0, chapter 9.7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

UNSET = 0x7FC0DEAD
"""What memory holds that nobody has written: a NaN, and no plausible sum."""
_TYPES: dict[str, Any] = {
    "u32": np.uint32,
    "s32": np.int32,
    "b32": np.uint32,
    "f32": np.float32,
    "u64": np.uint64,
    "s64": np.int64,
    "b64": np.uint64,
    "pred": np.bool_,
}
_BITS = {"pred": np.bool_, 4: np.uint32, 8: np.uint64}
_LINE = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*);")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\)(.*?)\{\n(.*)\n\}", re.DOTALL)
_SHARED = re.compile(r"\.shared \.align (\d+) \.(?:b8 (\w+)\[(\d+)\]|[bfsu]\d+ (\w+));")

_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mul.lo": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "min": np.fmin,  # of a number and NaN the number, as PTX has it
    "max": np.fmax,
}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


class Fault(Exception):
    """The kernel did what hardware forbids or leaves undefined."""


@dataclass(frozen=True)
class Instruction:
    """`opcode` operands, carried out where the guard (a predicate register) is `wanted`."""

    guard: str | None
    wanted: bool
    opcode: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Basic blocks in the order of the text, labels as positions in it, and shared variables."""

    blocks: tuple[tuple[Instruction, ...], ...]
    labels: dict[str, int]
    parameters: tuple[str, ...]
    shared: dict[str, int]
    shared_bytes: int


def parse(text: str) -> Program:
    """The one entry of a PTX module."""
    entry = _ENTRY.search(text)
    assert entry is not None, "the module has no entry"
    shared, size = {}, 0
    for alignment, array, count, scalar in _SHARED.findall(text):
        shared[array or scalar] = size = -(-size // int(alignment)) * int(alignment)
        size += int(count or alignment)  # a number is aligned to its size
    blocks: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for line in (line.split("//")[0].strip() for line in entry[4].splitlines()):
        if line.endswith(":"):
            blocks.append([])
            labels[line[:-1]] = len(blocks) - 1
        elif line and not line.startswith("."):
            found = _LINE.fullmatch(line)
            assert found is not None, line
            inverted, guard, opcode, operands = found.groups()
            blocks[-1].append(Instruction(guard, not inverted, opcode, tuple(_OPERAND.findall(operands))))
    parameters = tuple(re.findall(r"\.param \S+ (\w+)", entry[2]))
    return Program(tuple(tuple(block) for block in blocks), labels, parameters, shared, size)


@dataclass
class Memory:
    """Words of 4 bytes at byte addresses from 0 on, in buffers that belong to one launch each."""

    words: Array = field(default_factory=lambda: np.zeros(0, np.uint32))
    readable: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    writable: Array = field(default_factory=lambda: np.zeros(0, np.int32))

    def buffer(self, launch: int, words: Array, *, writable: bool) -> int:
        """Append a buffer, aligned as cudaMalloc does, with a gap behind it. Returns its address."""
        start = len(self.words)
        room = -(-(len(words) + 1) // 64) * 64
        self.words = np.concatenate([self.words, words, np.full(room - len(words), UNSET, np.uint32)])
        for name, mine in (("readable", not writable), ("writable", writable)):
            owner = np.full(room, -1, np.int32)
            owner[: len(words)] = launch if mine else -1
            setattr(self, name, np.concatenate([getattr(self, name), owner]))
        return 4 * start


class Machine:
    """Threads of some launches: `blocks[i]` blocks of `threads` threads with the arguments `arguments[i]`."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        threads: int,
        blocks: Sequence[int],
        arguments: Sequence[Sequence[int]],
    ) -> None:
        self.program, self.memory, self.threads = program, memory, threads
        per_launch = np.asarray(blocks) * threads
        self.launch = np.repeat(np.arange(len(blocks), dtype=np.int32), per_launch)
        self.count = len(self.launch)
        self.block = np.arange(self.count) // threads
        first = np.concatenate([[0], np.cumsum(blocks)[:-1]])
        self.special = {
            "%tid.x": (np.arange(self.count) % threads).astype(np.uint32),
            "%ctaid.x": (self.block - first[self.launch]).astype(np.uint32),
            "%ntid.x": np.full(self.count, threads, np.uint32),
        }
        self.arguments = {
            name: np.asarray([given[place] for given in arguments], np.uint64)[self.launch]
            for place, name in enumerate(program.parameters)
        }
        shape = (int(np.sum(blocks)), max(program.shared_bytes // 4, 1))
        self.shared = np.full(shape, UNSET, np.uint32)
        # Who wrote a shared word between which barriers.
        self.writer = np.full(shape, -1, np.int32)
        self.written = np.full(shape, -1, np.int32)
        self.barriers = np.zeros(shape[0], np.int64)
        self.registers: dict[str, Array] = {}

    def run(self) -> None:
        """Every thread to its end."""
        waiting = {0: np.ones(self.count, bool)}
        with np.errstate(all="ignore"):
            while waiting:
                place = min(waiting)
                active = self._run_block(place, waiting.pop(place), waiting)
                if active.any():
                    self._send(waiting, place + 1, active)

    def _send(self, waiting: dict[int, Array], place: int, mask: Array) -> None:
        waiting[place] = waiting[place] | mask if place in waiting else mask.copy()

    def _run_block(self, place: int, active: Array, waiting: dict[int, Array]) -> Array:
        """Threads that reach the end of the block."""
        for step in self.program.blocks[place]:
            mask = active
            if step.guard is not None:
                mask = active & (self.registers[step.guard] == step.wanted)
            if step.opcode in ("bra", "bra.uni", "ret"):
                if step.opcode != "ret" and mask.any():
                    self._send(waiting, self.program.labels[step.operands[0]], mask)
                active = active & ~mask
                if not active.any():
                    break
            else:
                self._carry_out(step, mask)
        return active

    def _value(self, operand: str, kind: str) -> Array:
        """Bits of an operand in every thread, read as `kind`."""
        dtype = _TYPES[kind]
        if (register := self.registers.get(operand)) is not None:
            return register.view(dtype)
        if operand.startswith("0f"):
            return np.asarray(int(operand[2:], 16), np.uint32).view(np.float32)
        if operand in self.special:
            return np.asarray(self.special[operand].view(dtype))
        number = self.program.shared[operand] if operand in self.program.shared else int(operand, 0)
        bits = _BITS[np.dtype(dtype).itemsize]
        return np.asarray(number % 2 ** (8 * np.dtype(dtype).itemsize), bits).view(dtype)

    def _set(self, register: str, value: Array, mask: Array) -> None:
        bits = np.bool_ if value.dtype == np.bool_ else _BITS[value.dtype.itemsize]
        if (held := self.registers.get(register)) is None:
            held = self.registers[register] = np.empty(self.count, bits)
            held[~mask] = 0 if bits is np.bool_ else UNSET
        np.copyto(held, value.view(bits), where=mask)

    def _address(self, operand: str) -> Array:
        base, _, offset = operand.strip("[]").partition("+")
        return self._value(base, "s64") + int(offset or 0)

    def _carry_out(self, step: Instruction, mask: Array) -> None:
        name, *modifiers = step.opcode.split(".")
        kind = modifiers[-1] if modifiers else ""
        to, *others = step.operands
        if name in ("ld", "st"):
            self._move(name, modifiers, step.operands, mask)
        elif step.opcode == "bar.sync":
            self._barrier(mask)
        elif step.opcode in ("shfl.sync.idx.b32", "shfl.sync.bfly.b32"):
            self._shuffle(step.operands, mask, across="bfly" in step.opcode)
        elif name == "setp":
            compare = _COMPARE[modifiers[0]]
            self._set(to, compare(*(self._value(one, kind) for one in others)), mask)
        elif name == "selp":
            yes, no = (self._value(one, kind) for one in others[:2])
            self._set(to, np.where(self._value(others[2], "pred"), yes, no), mask)
        elif name in ("mov", "cvta"):
            self._set(to, self._value(others[0], kind), mask)
        elif name == "cvt" and modifiers[0][0] in "us" and modifiers[1][0] in "us":
            self._set(to, self._value(others[0], kind).astype(_TYPES[modifiers[0]]), mask)
        elif name in ("mul", "mad") and modifiers[0] in ("hi", "wide", "lo") and kind.endswith("32"):
            wide = {"s32": np.int64, "u32": np.uint64}[kind]
            left, right = (self._value(one, kind).astype(wide) for one in others[:2])
            product = left * right
            if modifiers[0] != "wide":
                product = (product >> (32 if modifiers[0] == "hi" else 0)).astype(_TYPES[kind])
            if name == "mad":
                sort = kind.replace("32", "64") if modifiers[0] == "wide" else kind
                product = product + self._value(others[2], sort)
            self._set(to, product, mask)
        elif (name if len(modifiers) < 2 else f"{name}.{modifiers[0]}") in _ARITHMETIC:
            self._arithmetic(name, modifiers, to, others, mask)
        else:
            raise NotImplementedError(f"{step.opcode} {', '.join(step.operands)}")

    def _arithmetic(self, name: str, modifiers: list[str], to: str, others: list[str], mask: Array) -> None:
        kind = modifiers[-1]
        left = self._value(others[0], kind)
        if name in ("shl", "shr"):
            # The count is a u32 whatever is shifted; one of the width or more would leave zero.
            count = self._value(others[1], "u32")
            if bool((np.broadcast_to(count, self.count)[mask] >= 8 * left.dtype.itemsize).any()):
                raise NotImplementedError(f"{name} by the width or more")
            right = count.astype(left.dtype)
        else:
            right = self._value(others[1], kind)
        operation = _ARITHMETIC[name if len(modifiers) < 2 else f"{name}.{modifiers[0]}"]
        self._set(to, operation(left, right), mask)

    def _move(self, name: str, modifiers: list[str], operands: tuple[str, ...], mask: Array) -> None:
        kind, space = modifiers[-1], modifiers[0]
        place, data = operands[::-1] if name == "ld" else operands
        registers = re.findall(r"%?\w+", data)
        if space == "param":
            self._set(data, self.arguments[place.strip("[]")], mask)
            return
        if space not in ("global", "shared") or not kind.endswith("32"):
            raise NotImplementedError(f"{name}.{'.'.join(modifiers)}")
        if not mask.any():
            for register in registers if name == "ld" else ():
                self._set(register, np.asarray(UNSET, np.uint32), mask)
            return
        at = np.broadcast_to(self._address(place), self.count)[mask]
        if (at % (4 * len(registers))).any():
            raise Fault(f"{name}.{'.'.join(modifiers)}: misaligned address")
        access = self._global if space == "global" else self._in_shared
        for offset, register in enumerate(registers):
            value = None if name == "ld" else self._word(register)[mask]
            loaded = access(at // 4 + offset, value, mask)
            if loaded is not None:
                everywhere = np.zeros(self.count, np.uint32)
                everywhere[mask] = loaded
                self._set(register, everywhere, mask)

    def _word(self, register: str) -> Array:
        """What a store of 32 bits takes of a register, which may be wider."""
        words = self._value(register, "u32")
        return np.broadcast_to(words if words.size in (1, self.count) else words[::2], self.count)

    def _global(self, word: Array, value: Array | None, mask: Array) -> Array | None:
        owner = self.memory.readable if value is None else self.memory.writable
        inside = (word >= 0) & (word < len(owner))
        bad = ~inside | (owner[np.where(inside, word, 0)] != self.launch[mask])
        if bad.any():
            launch = int(self.launch[mask][bad][0])
            doing = "reads" if value is None else "writes"
            raise Fault(f"launch {launch} {doing} outside of its buffer, in {int(bad.sum())} threads")
        if value is None:
            return np.asarray(self.memory.words[word])
        self.memory.words[word] = value
        return None

    def _in_shared(self, word: Array, value: Array | None, mask: Array) -> Array | None:
        thread = np.flatnonzero(mask)
        block = self.block[thread]
        if ((word < 0) | (word >= self.program.shared_bytes // 4)).any():
            raise Fault("an access outside of shared memory")
        if value is None:
            fresh = self.written[block, word] == self.barriers[block]
            if (fresh & (self.writer[block, word] != thread)).any():
                raise Fault("shared memory is read before the barrier that follows its writing")
            return np.asarray(self.shared[block, word])
        self.shared[block, word] = value
        self.writer[block, word] = thread
        self.written[block, word] = self.barriers[block]
        return None

    def _barrier(self, mask: Array) -> None:
        here = mask.reshape(-1, self.threads)
        if (here.any(axis=1) != here.all(axis=1)).any():
            raise Fault("a barrier that not all threads of a block reach")
        self.barriers[here.all(axis=1)] += 1

    def _refuse_parts_of_warps(self, members: str, mask: Array) -> None:
        warps = mask.reshape(-1, 32)
        if (np.broadcast_to(self._value(members, "u32"), self.count)[mask] != 0xFFFFFFFF).any():
            raise Fault("a shuffle or a vote that does not name all lanes")
        if (warps.any(axis=1) != warps.all(axis=1)).any():
            raise Fault("a shuffle or a vote that not all lanes of a warp reach")

    def _shuffle(self, operands: tuple[str, ...], mask: Array, *, across: bool) -> None:
        to, value, source, clamp, members = operands
        self._refuse_parts_of_warps(members, mask)
        lane = np.arange(self.count) % 32
        wanted = np.broadcast_to(self._value(source, "u32"), self.count).astype(np.int64) & 31
        control = np.broadcast_to(self._value(clamp, "u32"), self.count).astype(np.int64)
        segment = (control >> 8) & 31
        last = (lane & segment) | (control & 31 & ~segment)
        chosen = lane ^ wanted if across else (lane & segment) | (wanted & ~segment)
        within = chosen <= last
        from_lane = np.arange(self.count) - lane + np.where(within, chosen, lane)
        register, _, predicate = to.partition("|")
        self._set(register, self._value(value, "b32")[from_lane], mask)
        if predicate:
            self._set(predicate, within, mask)
