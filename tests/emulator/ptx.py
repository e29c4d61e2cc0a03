"""Runs the PTX of a kernel on the CPU: all threads of several launches at once, each a lane of NumPy arrays.

The text is what NVRTC makes of the kernel's very source, so bounds, alignment, shuffles and barriers are the kernel's.
Of divided threads those at the smallest address go first, a basic block at a time, so that they meet again.
Raises `Fault` where hardware would fail or give an undefined value, and `NotImplementedError` for an instruction that
the kernels under test do not use. Semantics: PTX ISA 9.0, chapter 9.7.
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

from emulator.formats import TYPES, Array, conversion
from emulator.outcomes import Fault, run_or_recall

Act = Callable[[Array], None]
"""Carries out an instruction in the threads of a mask."""

UNSET = 0x7FC0DEAD
"""What memory holds that nobody has written: a NaN, and no plausible sum."""
RANK_SHIFT = 24
"""Shared memory of a block is smaller than 2^24 bytes, so that its rank in a cluster fits above an address."""
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
_PARAMETER = re.compile(r"\.param (?:\.align (\d+) )?\.\w+ (\w+)(?:\[(\d+)\])?")
_SHARED = re.compile(r"\.shared \.align (\d+) \.(?:b8 (\w+)\[(\d+)\]|[bfsu]\d+ (\w+));")
_EXTERN = re.compile(r"\.extern \.shared \.align (\d+) \.b8 (\w+)\[\];")
_SCOPE = re.compile(r"^\s*\{(.*?)\}\s*$", re.DOTALL | re.MULTILINE)
_OWN = re.compile(r"\.reg \.\w+\s+%?(\w+);")
_MAP_ALIGNMENT = "64"
registers_in = functools.cache(re.compile(r"%\w+").findall)
"""Registers in an operand."""


def _exponential(x: Array) -> Array:
    exact = np.exp2(x.astype(np.float64))
    return np.where(exact < 2.0**-126, 0, exact).astype(np.float32)


def _insert(new: Array, old: Array, at: Array, width: Array) -> Array:
    wide = np.uint64
    kept = ((wide(1) << width.astype(wide)) - wide(1)) << at.astype(wide)
    return np.asarray((old & ~kept | new.astype(wide) << at & kept).astype(np.uint32))


def _permute(low: Array, high: Array, chosen: Array) -> Array:
    """Bytes of two words, by numbers of four bits."""
    both = np.stack([low, high], axis=-1).view(np.uint8)
    places = np.stack([chosen >> 4 * at & 7 for at in range(4)], axis=-1)
    return np.take_along_axis(both, places, axis=-1).view(np.uint32)[:, 0]


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "add": np.add,
    "add.rn": np.add,
    "and": np.bitwise_and,
    "bfi": _insert,
    "div": lambda left, right: (left - np.fmod(left, right)) // right,
    "div.rn": np.divide,
    "ex2.approx": lambda x: np.exp2(x.astype(np.float64)).astype(np.float32),
    "ex2.approx.ftz": _exponential,
    "fma.rn": lambda left, right, add: (
        np.multiply(left, right, dtype=np.float64) + add
    ).astype(left.dtype),
    "lg2.approx": lambda x: np.log2(x.astype(np.float64)).astype(np.float32),
    "max": np.fmax,  # of a number and NaN the number, as PTX has it
    "min": np.fmin,
    "mul": np.multiply,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "prmt": _permute,
    "rcp.rn": np.reciprocal,
    "rem": np.fmod,
    "sqrt.rn": np.sqrt,
    "sub": np.subtract,
    "xor": np.bitwise_xor,
}
"""Of operands of one type."""
_BY_NUMBER: dict[str, Callable[[Array, Array], Array]] = {
    # By the width or more NumPy shifts as PTX does.
    "shl": np.left_shift,
    "shr": np.right_shift,
    "mapa": lambda address, rank: address | rank << RANK_SHIFT,
}
"""Of a number of some type and a u32."""
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
_ATOMIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "exch": lambda held, given: given,
    "inc": lambda held, limit: 0 if held >= limit else held + 1,
    "max": np.maximum,
}
"""What an atomic leaves in memory, of what it holds and what is given."""


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


def _without_scope(scope: re.Match[str]) -> str:
    """What stands in braces, its own registers under names that no others have."""
    inside = _OWN.sub("", scope[1])
    for name in _OWN.findall(scope[1]):
        inside = re.sub(rf"(?<![\w.])%?{name}(?![\w.])", f"%own_{name}", inside)
    return inside


@functools.lru_cache(maxsize=32)
def parse(text: str, dynamic_bytes: int) -> Program:
    """The one entry of a PTX module that has `dynamic_bytes` of dynamic shared memory.

    A tensor map is an argument; of other structures each 8 bytes are.
    """
    entry = _ENTRY.search(text)
    assert entry is not None, "the module has no entry"
    shared = {}
    size = 0
    for alignment, array, count, scalar in _SHARED.findall(text):
        shared[array or scalar] = size = -(-size // int(alignment)) * int(alignment)
        size += int(count or alignment)  # a number is aligned to its size
    dynamic = _EXTERN.findall(text)
    for alignment, _ in dynamic:
        size = -(-size // int(alignment)) * int(alignment)
    shared |= {name: size for _, name in dynamic}
    blocks: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    body = _SCOPE.sub(_without_scope, entry[4])
    for line in (line.split("//")[0].strip() for line in body.splitlines()):
        if line.endswith(":"):
            blocks.append([])
            labels[line[:-1]] = len(blocks) - 1
        elif line and not line.startswith("."):
            blocks[-1].append(Instruction(*_instruction(line)))
    parameters: list[str] = []
    for alignment, name, count in _PARAMETER.findall(entry[2]):
        step = int(count) if alignment == _MAP_ALIGNMENT else 8
        parameters.append(name)
        parameters += [f"{name}+{at}" for at in range(step, int(count or 0), step)]
    return Program(
        tuple(tuple(block) for block in blocks),
        labels,
        tuple(parameters),
        shared,
        size + dynamic_bytes,
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
        # Rows of whole 8 bytes.
        words = max(-(-program.shared_bytes // 8) * 2, 2)
        self.shared = np.full((int(np.sum(blocks)), words), UNSET, np.uint32)
        self.barriers = np.zeros(len(self.shared), np.int64)

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
            found = held.view(TYPES[kind])
            return (
                found
                if len(found) == self.count
                else found[:: len(found) // self.count]
            )
        if (constant := self.constants.get((operand, kind))) is not None:
            return constant
        dtype = np.dtype(TYPES[kind])
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
        operation, _, kind = step.opcode.rpartition(".")
        name, *modifiers = step.opcode.split(".")
        to, *others = step.operands or ("",)
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
        if step.opcode == "bar.red.or.pred":
            return partial(self._any_of_block, step.operands)
        if name == "atom":
            return partial(self._atomic, step)
        if step.opcode == "activemask.b32":
            return partial(self._active, to)
        if name == "shfl":
            return partial(self._shuffle, modifiers[1], step.operands)
        if step.opcode == "vote.sync.any.pred":
            return partial(self._any_of_warp, step.operands)
        if name == "membar":
            return lambda mask: None
        if name == "setp":
            return self._sets(to, _COMPARE[modifiers[0]], others, [kind] * 2)
        if name == "selp":
            return self._sets(
                to,
                lambda yes, no, which: np.where(which, yes, no),
                others,
                [kind, kind, "pred"],
            )
        if name == "mov" and "{" in to:
            return self._split(registers_in(to), others[0], kind)
        if name == "mov" and "{" in others[0]:
            return self._join(to, registers_in(others[0]), kind)
        if name in ("mov", "cvta"):
            return self._sets(to, np.asarray, others, [kind])
        if name == "cvt":
            return self._sets(
                to,
                conversion(modifiers),
                others,
                [kind if kind in TYPES else "b16"] * len(others),
            )
        if name in ("mul", "mad") and modifiers[0] in ("hi", "wide", "lo"):
            return self._product(modifiers[0], kind, to, others)
        if name in _BY_NUMBER:
            function = _BY_NUMBER[name]
            return self._sets(
                to,
                lambda value, number: function(value, number.astype(value.dtype)),
                others,
                [kind, "u32"],
            )
        if operation in _FUNCTIONS:
            kinds = [kind] * len(others)
            return self._sets(to, _FUNCTIONS[operation], others, kinds)
        raise NotImplementedError(f"{step.opcode} {', '.join(step.operands)}")

    def _split(self, parts: Sequence[str], source: str, kind: str) -> Act:
        """Of a register two of half its width."""
        value = self._value(source, kind)
        half = TYPES[f"u{4 * value.itemsize}"]

        def split(mask: Array) -> None:
            for part, bits in zip(
                parts, value.view(half).reshape(-1, 2).T, strict=True
            ):
                self._set(part, bits, mask)

        return split

    def _join(self, to: str, parts: Sequence[str], kind: str) -> Act:
        """Of two registers one of twice their width."""
        half = f"b{int(kind[1:]) // 2}"

        def join(low: Array, high: Array) -> Array:
            return np.stack([low, high], axis=-1).view(TYPES[kind])[:, 0]

        return self._sets(to, join, parts, [half] * 2)

    def _product(self, part: str, kind: str, to: str, operands: list[str]) -> Act:
        bits = int(kind[1:])
        wide = f"{kind[0]}{2 * bits}"
        sort = wide if part == "wide" else kind

        def product(left: Array, right: Array, add: Any = 0) -> Array:
            if part == "lo":
                return np.asarray(left * right + add)
            whole = left.astype(TYPES[wide]) * right
            if part == "hi":
                whole >>= bits
            return np.asarray(whole.astype(TYPES[sort]) + add)

        return self._sets(to, product, operands, [kind, kind, sort][: len(operands)])

    # Memory.

    def _move(self, name: str, modifiers: list[str], operands: tuple[str, ...]) -> Act:
        """Loads or stores a number or several that lie side by side."""
        loads = name == "ld"
        is_global = "global" in modifiers
        if not is_global and "shared" not in modifiers:
            raise NotImplementedError(f"{name}.{'.'.join(modifiers)}")
        size = int(modifiers[-1][1:]) // 8
        place, data = operands[::-1] if loads else operands
        base, offset = self._place(place)
        held = max(size, 2)  # bytes of a register
        registers = [
            self._register(one, held) if loads else self._value(one, f"u{8 * held}")
            for one in re.findall(r"-?%?\w+", data)
        ]
        count = np.arange(len(registers))[:, None]
        whole = size * len(registers)
        words = np.arange(-(-whole // 4))[:, None]
        check = self._check_global if is_global else self._check_shared
        room = self.memory.words if is_global else self.shared.reshape(-1)
        numbers = room.view(f"u{size}")
        row = 0 if is_global else 4 * self.shared.shape[1]

        def move(mask: Array) -> None:
            thread = np.flatnonzero(mask)
            at = base[thread].astype(np.int64) + offset
            if (at % whole).any():
                raise Fault(f"{name}.{'.'.join(modifiers)}: misaligned address")
            check(at // 4 + words, thread, writes=not loads)
            places = (at + row * self.block[thread]) // size + count
            if loads:
                for register, number in zip(registers, numbers[places], strict=True):
                    register[thread] = number
            else:
                numbers[places] = np.stack([one[thread] for one in registers])

        return move

    def _check_global(self, word: Array, thread: Array, *, writes: bool) -> None:
        """Refuses accesses of threads, along the last axis, to words that are not theirs."""
        owner = self.memory.writable if writes else self.memory.readable
        inside = (word >= 0) & (word < len(owner))
        bad = ~inside | (owner[np.where(inside, word, 0)] != self.launch[thread])
        if bad.any():
            wrong = thread[bad.reshape(-1, len(thread)).any(axis=0)]
            launch = int(self.launch[wrong[0]])
            doing = "writes" if writes else "reads"
            raise Fault(
                f"launch {launch} {doing} outside of its buffer, in {len(wrong)} threads"
            )

    def _check_shared(self, word: Array, thread: Array, *, writes: bool) -> None:
        """The same in the shared memory of the threads' blocks."""
        if ((word < 0) | (word >= self.program.shared_bytes // 4)).any():
            raise Fault("an access outside of shared memory")

    def _in_shared(
        self, word: Array, value: Array | None, thread: Array
    ) -> Array | None:
        """Reads words in the shared memory of the threads' blocks, or writes them where there is a value."""
        self._check_shared(word, thread, writes=value is not None)
        block = self.block[thread]
        if value is None:
            return np.asarray(self.shared[block, word])
        self.shared[block, word] = value
        return None

    def _atomic(self, step: Instruction, mask: Array) -> None:
        """One thread after the other takes a number and leaves another one."""
        *modifiers, operation, kind = step.opcode.split(".")
        to, place, by = step.operands
        given = self._value(by, kind)
        address = self._address(place)
        before = np.zeros(self.count, given.dtype)
        change = _ATOMIC[operation]
        is_global = "global" in modifiers
        for thread in self._in_turn(mask).tolist():
            word = int(address[thread]) // 4
            if is_global:
                Machine._check_global(
                    self, np.asarray([word]), np.asarray([thread]), writes=True
                )
            self._is_counted(step.opcode, word, thread)
            words = self.memory.words if is_global else self.shared[self.block[thread]]
            cell = words[word:][: given.itemsize // 4].view(given.dtype)
            before[thread] = cell[0]
            cell[0] = change(cell[0], given[thread])
        if to != "_":
            self._set(to, before, mask)

    def _in_turn(self, mask: Array) -> Array:
        """The order in which threads carry out an atomic."""
        return np.flatnonzero(mask)

    def _is_counted(self, opcode: str, word: int, thread: int) -> None:
        """What follows from an atomic for who may read what."""

    # Threads of a warp and of a block.

    def _whole(self, mask: Array, size: int, what: str) -> Array:
        """Which groups of `size` threads carry out an instruction, each as a whole; `what` is wrong otherwise."""
        groups = mask.reshape(-1, size)
        if (groups.any(axis=1) != groups.all(axis=1)).any():
            raise Fault(what)
        return groups.all(axis=1)

    def _barrier(self, mask: Array) -> None:
        what = "a barrier that not all threads of a block reach"
        self.barriers[self._whole(mask, self.threads, what)] += 1

    def _any_of_block(self, operands: tuple[str, ...], mask: Array) -> None:
        self._barrier(mask)
        given = self._value(operands[2], "pred").reshape(-1, self.threads)
        self._set(operands[0], given.any(axis=1).repeat(self.threads), mask)

    def _refuse_parts_of_warps(self, members: str, mask: Array) -> None:
        if (self._value(members, "u32")[mask] != 0xFFFFFFFF).any():
            raise Fault("a shuffle or a vote that does not name all lanes")
        self._whole(mask, 32, "a shuffle or a vote that not all lanes of a warp reach")

    def _any_of_warp(self, operands: tuple[str, ...], mask: Array) -> None:
        self._refuse_parts_of_warps(operands[2], mask)
        lanes = self._value(operands[1], "pred").reshape(-1, 32)
        self._set(operands[0], lanes.any(axis=1).repeat(32), mask)

    def _active(self, to: str, mask: Array) -> None:
        """A bit for each lane of the warp that runs this instruction."""
        lanes = np.packbits(mask.reshape(-1, 32), axis=1, bitorder="little")
        self._set(to, lanes.view(np.uint32).repeat(32), mask)

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
