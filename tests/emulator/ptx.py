"""Runs the PTX of a kernel on the CPU: all threads of several launches at once, each a lane of NumPy arrays.

The text is what NVRTC makes of the kernel's very source, so bounds, alignment, shuffles and barriers are the kernel's.
Of divided threads those at the smallest address go first, a basic block at a time, so that they meet again.
Raises `Fault` where hardware would fail or give an undefined value, and `NotImplementedError` for an instruction that
the kernels under test do not use. Of races it sees one kind: a read of shared memory before the barrier that follows
its writing. Semantics: PTX ISA 9.0, chapter 9.7.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from ladder.model.files import sha256

from emulator.outcomes import Fault, run_or_recall

Array = np.ndarray[Any, Any]
Act = Callable[[Array], None]
"""Carries out an instruction in the threads of a mask."""

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
    "u16": np.uint16,
    "s16": np.int16,
    "b16": np.uint16,
    "f64": np.float64,
    "pred": np.bool_,
}
_BITS: dict[int, tuple[Any, int]] = {
    1: (np.bool_, 0),
    2: (np.uint16, 0x7FFF),
    4: (np.uint32, UNSET),
    8: (np.uint64, UNSET),
}
"""How registers of so many bytes are held, and what they hold where nothing was written."""
_LINE = re.compile(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.:]*)\s*(.*);")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\)(.*?)\{\n(.*)\n\}", re.DOTALL)
_SHARED = re.compile(r"\.shared \.align (\d+) \.(?:b8 (\w+)\[(\d+)\]|[bfsu]\d+ (\w+));")

_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "add.rn": np.add,
    "div": np.floor_divide,
    "div.rn": np.divide,
    "rem": np.remainder,
    "sub": np.subtract,
    "mul": np.multiply,
    "mul.lo": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.fmin,  # of a number and NaN the number, as PTX has it
    "max": np.fmax,
}
_SHIFTS: dict[str, Callable[[Array, Array], Array]] = {
    "shl": np.left_shift,
    "shr": np.right_shift,
}
"""By the width or more NumPy shifts as PTX does."""
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "neu": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    # A NaN makes these true, and `num` false.
    "nan": lambda left, right: (left != left) | (right != right),
    "ltu": lambda left, right: ~(left >= right),
    "leu": lambda left, right: ~(left > right),
    "gtu": lambda left, right: ~(left <= right),
    "geu": lambda left, right: ~(left < right),
    "num": lambda left, right: (left == left) & (right == right),
}


_COUNT = re.compile(r"atom\.(relaxed|acq_rel)\.gpu\.global\.(inc|add)\.u32")


@dataclass(frozen=True, eq=False)
class Instruction:
    """`opcode` operands, carried out where the guard (a predicate register) is `wanted`. Equal to itself alone."""

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

    @functools.cached_property
    def digest(self) -> str:
        blocks = [
            [(one.guard, one.wanted, one.opcode, one.operands) for one in block]
            for block in self.blocks
        ]
        rest = [
            getattr(self, one.name)
            for one in dataclasses.fields(self)
            if one.name != "blocks"
        ]
        return sha256(repr([blocks, rest]).encode())


@functools.lru_cache(maxsize=2**16)
def _instruction(line: str) -> tuple[str | None, bool, str, tuple[str, ...]]:
    """Fields of an instruction: programs share many lines."""
    found = _LINE.fullmatch(line)
    assert found is not None, line
    inverted, guard, opcode, operands = found.groups()
    return guard, not inverted, opcode, tuple(_OPERAND.findall(operands))


def parse(text: str) -> Program:
    """The one entry of a PTX module."""
    entry = _ENTRY.search(text)
    assert entry is not None, "the module has no entry"
    shared = {}
    size = 0
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
            blocks[-1].append(Instruction(*_instruction(line)))
    parameters = tuple(re.findall(r"\.param \S+ (\w+)", entry[2]))
    return Program(
        tuple(tuple(block) for block in blocks), labels, parameters, shared, size
    )


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
        self.words = np.concatenate(
            [self.words, words, np.full(room - len(words), UNSET, np.uint32)]
        )
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
        self.program = program
        self.memory = memory
        self.threads = threads
        per_launch = np.asarray(blocks) * threads
        self.launch = np.repeat(np.arange(len(blocks), dtype=np.int32), per_launch)
        self.count = len(self.launch)
        self.block = np.arange(self.count) // threads
        # The mask where no thread is left out.
        self.everyone = np.ones(self.count, bool)
        first = np.concatenate([[0], np.cumsum(blocks)[:-1]])
        self.registers: dict[str, Array] = {
            "%tid.x": (np.arange(self.count) % threads).astype(np.uint32),
            "%ctaid.x": (self.block - first[self.launch]).astype(np.uint32),
            "%ntid.x": np.full(self.count, threads, np.uint32),
        }
        self.acts: dict[Instruction, Act] = {}
        self.constants: dict[tuple[str, str], Array] = {}
        self.arguments = {
            name: np.asarray([given[place] for given in arguments], np.uint64)[
                self.launch
            ]
            for place, name in enumerate(program.parameters)
        }
        shape = (int(np.sum(blocks)), max(program.shared_bytes // 4, 1))
        self.shared = np.full(shape, UNSET, np.uint32)
        # Who wrote a shared word between which barriers.
        self.writer = np.full(shape, -1, np.int32)
        self.written = np.full(shape, -1, np.int32)
        self.barriers = np.zeros(shape[0], np.int64)

    def run(self) -> None:
        """Every thread to its end, unless it is known what that comes to."""
        run_or_recall(self, self._run)

    def _run(self) -> None:
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
        if active.all():
            active = self.everyone
        for step in self.program.blocks[place]:
            mask = active
            if step.guard is not None:
                held = self.registers[step.guard]
                mask = active & (held if step.wanted else ~held)
            if step.opcode in ("bra", "bra.uni", "ret"):
                if step.opcode != "ret" and mask.any():
                    self._send(waiting, self.program.labels[step.operands[0]], mask)
                active = active & ~mask
                if not active.any():
                    break
            else:
                if step not in self.acts:
                    self.acts[step] = self._act_of(step)
                self.acts[step](mask)
        return active

    def _act_of(self, step: Instruction) -> Act:
        return self._decode(step)

    def _value(self, operand: str, kind: str) -> Array:
        """Bits of an operand in every thread, read as `kind`: of a register a view, lower bits of a wider one."""
        if operand[0] == "%":
            if (held := self.registers.get(operand)) is None:
                raise Fault(f"the register {operand} is read before it is written")
            found = held.view(_TYPES[kind])
            return (
                found
                if len(found) == self.count
                else found[:: len(found) // self.count]
            )
        if (constant := self.constants.get((operand, kind))) is not None:
            return constant
        dtype = np.dtype(_TYPES[kind])
        if operand.startswith(("0f", "0d")):
            number = int(operand[2:], 16)
        else:
            number = (
                self.program.shared[operand]
                if operand in self.program.shared
                else int(operand, 0)
            )
        bits, _ = _BITS[dtype.itemsize]
        constant = np.full(self.count, number % 2 ** (8 * dtype.itemsize), bits).view(
            dtype
        )
        self.constants[operand, kind] = constant
        return constant

    def _register(self, name: str, size: int) -> Array:
        """Bits of a register, which is of `size` bytes if it is new."""
        if (held := self.registers.get(name)) is None:
            bits, unset = _BITS[size]
            held = self.registers[name] = np.full(self.count, unset, bits)
        return held

    def _set(self, register: str, value: Array, mask: Array) -> None:
        size = value.dtype.itemsize
        held = self._register(register, size)
        bits = value.view(_BITS[size][0])
        if mask is self.everyone:
            held[:] = bits
        else:
            np.copyto(held, bits, where=mask)

    def _sets(
        self,
        to: str,
        function: Callable[..., Array],
        operands: Sequence[str],
        kinds: Sequence[str],
    ) -> Act:
        """Sets a register to a function of operands, read as `kinds`."""
        given = [
            self._value(one, kind) for one, kind in zip(operands, kinds, strict=True)
        ]
        return lambda mask: self._set(to, function(*given), mask)

    def _place(self, operand: str) -> tuple[Array, int]:
        """What an address consists of: a register or number of 32 or 64 bits, and an offset."""
        base, _, offset = operand.strip("[]").partition("+")
        narrow = base in self.registers and self.registers[base].itemsize == 4
        return self._value(base, "u32" if narrow else "s64"), int(offset or 0)

    def _address(self, operand: str) -> Array:
        base, offset = self._place(operand)
        return base.astype(np.int64) + offset

    def _decode(self, step: Instruction) -> Act:
        """How to carry out an instruction, asked once: its operands are the registers that were written until then."""
        name, *modifiers = step.opcode.split(".")
        kind = modifiers[-1] if modifiers else ""
        to, *others = step.operands
        operation = name if len(modifiers) < 2 else f"{name}.{modifiers[0]}"
        if step.opcode.startswith("ld.param"):
            bits = self.arguments[others[0].strip("[]")]
            if not kind.endswith("64"):
                bits = bits.astype(np.uint32)
            if kind == "s32" and to.startswith("%rd"):  # extended by its sign
                bits = bits.view(np.int32).astype(np.int64)
            return partial(self._set, to, bits)
        if name in ("ld", "st"):
            return self._move(name, modifiers, step.operands)
        if step.opcode == "bar.sync":
            return self._barrier
        if _COUNT.fullmatch(step.opcode):
            return partial(self._count, step)
        if step.opcode == "activemask.b32":
            return partial(self._active, to)
        if name == "shfl" and kind == "b32":
            return partial(self._shuffle, modifiers[1], step.operands)
        if name == "setp":
            return self._sets(to, _COMPARE[modifiers[0]], others, [kind] * 2)
        if name == "selp":
            return self._sets(
                to,
                lambda yes, no, which: np.where(which, yes, no),
                others,
                [kind, kind, "pred"],
            )
        if name in ("mov", "cvta"):
            return self._sets(to, lambda value: value, others, [kind])
        if name == "cvt" and modifiers[0][0] in "us" and modifiers[1][0] in "us":
            return self._sets(
                to, lambda value: value.astype(_TYPES[modifiers[0]]), others, [kind]
            )
        if (
            name in ("mul", "mad")
            and modifiers[0] in ("hi", "wide", "lo")
            and kind.endswith("32")
        ):
            return self._product(modifiers[0], kind, to, others)
        if name in _SHIFTS:
            shift = _SHIFTS[name]  # the count is a u32 whatever is shifted
            return self._sets(
                to,
                lambda value, count: shift(value, count.astype(value.dtype)),
                others,
                [kind, "u32"],
            )
        if operation in _ARITHMETIC:
            return self._sets(to, _ARITHMETIC[operation], others, [kind] * 2)
        raise NotImplementedError(f"{step.opcode} {', '.join(step.operands)}")

    def _product(self, part: str, kind: str, to: str, operands: list[str]) -> Act:
        wide = {"s32": np.int64, "u32": np.uint64}[kind]
        shift = 32 if part == "hi" else 0
        sort = kind.replace("32", "64") if part == "wide" else kind

        def product(left: Array, right: Array, add: Any = 0) -> Array:
            return np.asarray(
                (left.astype(wide) * right >> shift).astype(_TYPES[sort]) + add
            )

        return self._sets(to, product, operands, [kind, kind, sort][: len(operands)])

    def _move(self, name: str, modifiers: list[str], operands: tuple[str, ...]) -> Act:
        kind = modifiers[-1]
        space = modifiers[0]
        place, data = operands[::-1] if name == "ld" else operands
        if space not in ("global", "shared") or not kind.endswith("32"):
            raise NotImplementedError(f"{name}.{'.'.join(modifiers)}")
        names = re.findall(r"%?\w+", data)
        (base, offset) = self._place(place)
        access = self._global if space == "global" else self._in_shared
        registers = [
            self._register(one, 4) if name == "ld" else self._value(one, "u32")
            for one in names
        ]
        count = np.arange(len(registers))[:, None]

        def move(mask: Array) -> None:
            thread = np.flatnonzero(mask)
            at = base[thread].astype(np.int64) + offset
            if (at % (4 * len(registers))).any():
                raise Fault(f"{name}.{'.'.join(modifiers)}: misaligned address")
            given = (
                None if name == "ld" else np.stack([one[thread] for one in registers])
            )
            found = access(at // 4 + count, given, thread)
            for register, loaded in zip(
                registers, () if found is None else found, strict=False
            ):
                register[thread] = loaded

        return move

    def _global(self, word: Array, value: Array | None, thread: Array) -> Array | None:
        """Reads words of threads, along the last axis, or writes them where there is a value."""
        owner = self.memory.readable if value is None else self.memory.writable
        inside = (word >= 0) & (word < len(owner))
        bad = ~inside | (owner[np.where(inside, word, 0)] != self.launch[thread])
        if bad.any():
            wrong = thread[bad.reshape(-1, len(thread)).any(axis=0)]
            launch = int(self.launch[wrong[0]])
            doing = "reads" if value is None else "writes"
            raise Fault(
                f"launch {launch} {doing} outside of its buffer, in {len(wrong)} threads"
            )
        if value is None:
            return np.asarray(self.memory.words[word])
        self.memory.words[word] = value
        return None

    def _count(self, step: Instruction, mask: Array) -> None:
        """One thread after the other takes a number and leaves a larger one; `inc` leaves 0 behind its limit."""
        to, address, given = step.operands
        words = self._address(address) // 4
        numbers = self._value(given, "u32")
        before = np.zeros(self.count, np.uint32)
        for thread in self._in_turn(mask):
            one = np.asarray([thread])
            word = words[thread : thread + 1]
            (held,) = Machine._global(self, word, None, one)  # type: ignore[misc]
            before[thread] = held
            after = held + numbers[thread]
            if ".inc." in step.opcode:
                after = 0 if held >= numbers[thread] else held + 1
            Machine._global(self, word, np.asarray([after], np.uint32), one)
            self._has_counted(step.opcode, int(word[0]), int(thread))
        self._set(to, before, mask)

    def _in_turn(self, mask: Array) -> Array:
        """The order in which threads count."""
        return np.flatnonzero(mask)

    def _has_counted(self, opcode: str, word: int, thread: int) -> None:
        """What follows from that for who may read what."""

    def _in_shared(
        self, word: Array, value: Array | None, thread: Array
    ) -> Array | None:
        """The same in the shared memory of the threads' blocks."""
        block = self.block[thread]
        if ((word < 0) | (word >= self.program.shared_bytes // 4)).any():
            raise Fault("an access outside of shared memory")
        if value is None:
            fresh = self.written[block, word] == self.barriers[block]
            if (fresh & (self.writer[block, word] != thread)).any():
                raise Fault(
                    "shared memory is read before the barrier that follows its writing"
                )
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
        if (self._value(members, "u32")[mask] != 0xFFFFFFFF).any():
            raise Fault("a shuffle or a vote that does not name all lanes")
        if (warps.any(axis=1) != warps.all(axis=1)).any():
            raise Fault("a shuffle or a vote that not all lanes of a warp reach")

    def _active(self, to: str, mask: Array) -> None:
        """A bit for each lane of the warp that runs this instruction."""
        bits = np.where(
            mask.reshape(-1, 32),
            np.uint32(1) << np.arange(32, dtype=np.uint32),
            np.uint32(0),
        )
        self._set(to, np.bitwise_or.reduce(bits, axis=1).repeat(32), mask)

    def _shuffle(self, mode: str, operands: tuple[str, ...], mask: Array) -> None:
        to, value, source, clamp, members = operands
        self._refuse_parts_of_warps(members, mask)
        lane = np.arange(self.count) % 32
        wanted = self._value(source, "u32").astype(np.int64) & 31
        control = self._value(clamp, "u32").astype(np.int64)
        segment = (control >> 8) & 31
        last = (lane & segment) | (control & 31 & ~segment)
        chosen = {
            "idx": (lane & segment) | (wanted & ~segment),
            "bfly": lane ^ wanted,
            "down": lane + wanted,
        }[mode]
        within = chosen <= last
        from_lane = np.arange(self.count) - lane + np.where(within, chosen, lane)
        register, _, predicate = to.partition("|")
        self._set(register, self._value(value, "b32")[from_lane], mask)
        if predicate:
            self._set(predicate, within, mask)
