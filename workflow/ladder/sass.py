"""Machine code of sm_90: fields of an instruction, loops, and what the register file makes of their FFMAs.

A cubin holds 128-bit instructions. Of each, this module knows the opcode, the four fields that name registers, and
the control field, in which the assembler tells the hardware when to issue: cycles to the next instruction (stall),
scoreboards to set and to wait for, and operands to keep for the next instruction (reuse). NVIDIA documents none of it.
The layout here is the one that nvdisasm prints, and the tests hold the two together; control fields, register banks and
the reuse cache were first described for Maxwell in Scott Gray's maxas.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ladder.errors import LadderError

ARCH_NUMBER = 90
"""The one architecture whose encoding is known here."""

RZ = 255
"""The register that reads as zero and costs no read."""

WIDEST = 4
"""Registers of the widest operand of any instruction but those of the tensor cores and FP64."""

_BYTES = 16
_MACHINE = 190  # EM_CUDA
_CONTROL = 105
_REUSE = _CONTROL + 17
REUSE_BITS = 0xF << _REUSE
CONTROL_BITS = ((1 << 21) - 1) << _CONTROL
FIXED_CONTROL_BITS = CONTROL_BITS & ~REUSE_BITS
"""What belongs to a place among the instructions rather than to the instruction in it."""

_FFMA_FAMILY = 0x023
_FFMA = 0x223
_BRA, _BSSY, _EXIT, _RET = 0x147, 0x145, 0x14D, 0x150
_INDIRECT = {0x149, 0x14C, 0x158, 0x159}  # BRX, JMX, BRXU, JMXU
_ALWAYS = 7  # predicate PT
_LDGSTS = 0x1AE

PASSABLE = {
    # Widths in registers of the fields: destination, then operands by place.
    0x002: ("MOV", (1, 0, 1, 0)),
    0x007: ("SEL", (1, 1, 1, 0)),
    0x00C: ("ISETP", (0, 1, 1, 1)),
    0x010: ("IADD3", (1, 1, 1, 1)),
    0x011: ("LEA", (1, 1, 1, 1)),
    0x012: ("LOP3", (1, 1, 1, 1)),
    0x019: ("SHF", (1, 1, 1, 1)),
    0x023: ("FFMA", (1, 1, 1, 1)),
    0x024: ("IMAD", (2, 2, 2, 2)),
    0x025: ("IMAD", (2, 2, 2, 2)),
    0x027: ("IMAD", (2, 2, 2, 2)),
    0x082: ("UMOV", (0, 0, 0, 0)),
    0x087: ("USEL", (0, 0, 0, 0)),
    0x08C: ("UISETP", (0, 0, 0, 0)),
    0x090: ("UIADD3", (0, 0, 0, 0)),
    0x091: ("ULEA", (0, 0, 0, 0)),
    0x099: ("USHF", (0, 0, 0, 0)),
    0x184: ("LDS", (WIDEST, 1, 0, 0)),
    0x1AE: ("LDGSTS", (1, 2, 2, 0)),
    0x1AF: ("LDGDEPBAR", (0, 0, 0, 0)),
}
"""What an FFMA may pass on its way: instructions that compute on registers, read shared memory or start a copy."""

STAYING = {
    0x005: "CS2R", 0x00B: "FSETP", 0x013: "IABS", 0x016: "PRMT", 0x020: "FMUL", 0x021: "FADD", 0x0B9: "ULDC",
    0x108: "MUFU", 0x118: "NOP", 0x119: "S2R", 0x11A: "DEPBAR", 0x11D: "BAR", 0x141: "BSYNC", 0x145: "BSSY",
    0x147: "BRA", 0x14D: "EXIT", 0x181: "LDG", 0x182: "LDC", 0x186: "STG", 0x188: "STS", 0x1C3: "S2UR",
}  # fmt: skip
"""Further ones whose operands are known, which no FFMA passes."""


@dataclass(frozen=True)
class Code:
    """Instructions of one kernel: its section, where that begins in the cubin, and 128-bit words in order."""

    section: str
    offset: int
    words: tuple[int, ...]


_WITHOUT_REGISTERS = {0x118, 0x11A, 0x141, 0x145, 0x147, 0x14D}  # NOP, DEPBAR, BSYNC, BSSY, BRA, EXIT


def arch_number(cubin: bytes) -> int:
    """The architecture a cubin is for, such as 90. Raises LadderError where it is no cubin."""
    if len(cubin) < 64 or cubin[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", cubin, 18)[0] != _MACHINE:
        raise LadderError("not a cubin: no 64-bit ELF file for CUDA")
    (flags,) = struct.unpack_from("<I", cubin, 48)
    # From version 8 of the ABI on, the lowest byte says something else.
    return int(flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF)


def machine_code(cubin: bytes) -> list[Code]:
    """Code of every kernel of a cubin, by its .text sections. Raises LadderError for what is not sm_90."""
    if (found := arch_number(cubin)) != ARCH_NUMBER:
        raise LadderError(f"machine code of sm_{found}: only sm_{ARCH_NUMBER} is known")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry_bytes, entries, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry_bytes) for i in range(entries)]
    names = headers[names_index][4]
    found_code = []
    for name_at, *_, offset, size in headers:
        begin = names + name_at
        name = cubin[begin : cubin.index(b"\0", begin)].decode()
        if name.startswith(".text."):
            words = struct.iter_unpack("<QQ", cubin[offset : offset + size // _BYTES * _BYTES])
            found_code.append(Code(name, offset, tuple(low | high << 64 for low, high in words)))
    return found_code


def with_words(cubin: bytes, code: Code, words: Sequence[int]) -> bytes:
    """The cubin with other instructions, as many as before, in the place of `code`."""
    if len(words) != len(code.words):
        raise ValueError(f"{code.section} has {len(code.words)} instructions, not {len(words)}")
    packed = b"".join(word.to_bytes(_BYTES, "little") for word in words)
    return cubin[: code.offset] + packed + cubin[code.offset + len(packed) :]


def opcode(word: int) -> int:
    """The opcode with its form: which operands are registers, immediates or constants."""
    return word & 0xFFF


def family(word: int) -> int:
    """The opcode whatever its form."""
    return word & 0x1FF


def always(word: int) -> bool:
    """Whether no predicate guards it."""
    return word >> 12 & 0xF == _ALWAYS


def stall(word: int) -> int:
    """Cycles until the next instruction of the warp may issue; at least one."""
    return max(1, word >> _CONTROL & 0xF)


def write_scoreboard(word: int) -> int | None:
    """The scoreboard that it frees once its results are there; None where its latency is fixed."""
    number = word >> _CONTROL + 5 & 0x7
    return None if number == 7 else number


def read_scoreboard(word: int) -> int | None:
    """The scoreboard that it frees once it has read its operands."""
    number = word >> _CONTROL + 8 & 0x7
    return None if number == 7 else number


def waits(word: int) -> int:
    """Mask of the scoreboards that it waits for."""
    return word >> _CONTROL + 11 & 0x3F


def reuse(word: int) -> int:
    """Mask of the operands kept for the next instruction: 1 is the first factor, 2 the second, 4 the addend."""
    return word >> _REUSE & 0xF


def with_reuse(word: int, mask: int) -> int:
    """The instruction with other operands kept."""
    return word & ~REUSE_BITS | mask << _REUSE


def registers(word: int) -> tuple[int, int, int, int]:
    """The four fields that may name a register: destination, and operands by place."""
    return word >> 16 & 0xFF, word >> 24 & 0xFF, word >> 32 & 0xFF, word >> 64 & 0xFF


def known(word: int) -> bool:
    """Whether it is clear which registers it reads and writes."""
    return family(word) in PASSABLE or family(word) in STAYING


@functools.cache
def accesses(word: int) -> tuple[frozenset[int], frozenset[int]]:
    """Registers that it may write and registers that it may read, never too few.

    A field counts as a register whatever the form of the instruction. Those of `STAYING` are taken as written and read.
    """
    fields = registers(word)
    widths = PASSABLE[family(word)][1] if family(word) in PASSABLE else (WIDEST,) * 4

    def named(places: Sequence[int]) -> frozenset[int]:
        return frozenset(
            register
            for place in places
            if fields[place] != RZ
            for register in range(fields[place], min(fields[place] + widths[place], RZ))
        )

    if family(word) in _WITHOUT_REGISTERS:
        return frozenset(), frozenset()
    if family(word) in STAYING or not known(word):
        return named(range(4)), named(range(4))
    if family(word) == _LDGSTS:  # its first field is the address to copy to
        return frozenset(), named(range(4))
    return named([0]), named([1, 2, 3])


@functools.cache
def depend(first: int, second: int) -> bool:
    """Whether two instructions may not change places: one may write what the other may read or write.

    So may every instruction that is in neither list.
    """
    if not (known(first) and known(second)):
        return True
    first_writes, first_reads = accesses(first)
    second_writes, second_reads = accesses(second)
    return not (
        first_writes.isdisjoint(second_reads)
        and first_writes.isdisjoint(second_writes)
        and first_reads.isdisjoint(second_writes)
    )


def is_ffma(word: int) -> bool:
    """Whether it is an FFMA of any form."""
    return family(word) == _FFMA_FAMILY


def is_register_ffma(word: int) -> bool:
    """Whether it is an FFMA of three registers that no predicate guards and no scoreboard follows."""
    return (
        opcode(word) == _FFMA
        and always(word)
        and write_scoreboard(word) is None
        and read_scoreboard(word) is None
    )


def branch_target(index: int, word: int) -> int | None:
    """Index of the instruction that a branch or BSSY at `index` names; None for all else."""
    if family(word) == _BRA:
        # In words of four bytes, split around the predicate's fields.
        steps = (word >> 34 & (1 << 48) - 1) << 8 | word >> 16 & 0xFF
        steps -= (steps >> 55) << 56
        return index + 1 + steps * 4 // _BYTES
    if family(word) == _BSSY:
        steps = word >> 32 & 0xFFFFFFFF
        steps -= (steps >> 31) << 32
        return index + 1 + steps // _BYTES
    return None


def jumps_indirectly(words: Sequence[int]) -> bool:
    """Whether a jump's target stands in a register, so that not all labels are known."""
    return any(family(word) in _INDIRECT for word in words)


def successors(index: int, word: int) -> Iterator[int]:
    """Indices of the instructions that may issue after the one at `index`."""
    leaves = family(word) in (_BRA, _EXIT, _RET)
    if not leaves or not always(word) or word >> 87 & 0xF != _ALWAYS:
        yield index + 1
    if family(word) == _BRA and (target := branch_target(index, word)) is not None:
        yield target


def loops(words: Sequence[int]) -> list[range]:
    """Instructions from the target of each branch backwards to the branch."""
    found = []
    for index, word in enumerate(words):
        if family(word) == _BRA:
            target = branch_target(index, word)
            if target is not None and 0 <= target < index:
                found.append(range(target, index + 1))
    return found


def hottest_loop(words: Sequence[int]) -> range | None:
    """Of the loops that hold no other loop with FFMAs, the one with most of them; None where no loop has any."""
    candidates = [
        (sum(map(is_ffma, words[body.start : body.stop])), body) for body in dict.fromkeys(loops(words))
    ]
    candidates = [(ffmas, body) for ffmas, body in candidates if ffmas]

    def holds(outer: range, inner: range) -> bool:
        return outer != inner and outer.start <= inner.start and inner.stop <= outer.stop

    innermost = [
        (ffmas, body) for ffmas, body in candidates if not any(holds(body, inner) for _, inner in candidates)
    ]
    return max(innermost, key=lambda entry: (entry[0], -entry[1].start))[1] if innermost else None


@functools.cache
def operands(word: int) -> tuple[int, int, int]:
    """What an FFMA reads by place; RZ for what is no register."""
    _, a, b, c = registers(word)
    form = opcode(word) >> 9
    if form == 1:
        return a, b, c
    # With an immediate, a constant or a uniform register for a factor or the addend, one register is left to read.
    return (a, RZ, c) if form in (4, 5, 6) else (a, c, RZ)


def issue_cycles(word: int, kept: tuple[int, int, int]) -> int:
    """Cycles that an FFMA holds the pipe, with `kept` in the reuse cache (register by operand, RZ for none).

    Registers lie in two banks by the parity of their number, and each bank reads one a cycle.
    """
    read = {
        register for register, held in zip(operands(word), kept, strict=True) if register not in (held, RZ)
    }
    odd = sum(register & 1 for register in read)
    return max(1, odd, len(read) - odd)


def kept_by(word: int) -> tuple[int, int, int]:
    """Registers that an FFMA leaves in the reuse cache, by operand; RZ for none."""
    a, b, c = operands(word)
    mask = reuse(word)
    return (a if mask & 1 else RZ, b if mask & 2 else RZ, c if mask & 4 else RZ)


NOTHING_KEPT = (RZ, RZ, RZ)


def loop_cycles(words: Sequence[int]) -> int:
    """Cycles to issue a loop's body once: FFMAs by `issue_cycles`, each other instruction one."""
    kept = NOTHING_KEPT
    cycles = 0
    for word in words:
        if is_ffma(word):
            cycles += issue_cycles(word, kept)
            kept = kept_by(word)
        else:
            cycles += 1
            kept = NOTHING_KEPT
    return cycles


def ffma_share(cubin: bytes) -> float | None:
    """FFMAs over the cycles to issue the hottest loop: the share of the FP32 peak that its machine code allows.

    Rule, measured on an H200: an FFMA issues in one cycle, but in two where it reads two registers of one bank or three
    registers at all; an operand is not read that the instruction just before kept (.reuse) in the same place; any other
    instruction takes a cycle and empties the cache. Waits for memory and other warps are not in it, so it is a bound.
    None where no loop has FFMAs or the architecture is not sm_90. Raises LadderError where it is no cubin.
    """
    if arch_number(cubin) != ARCH_NUMBER:
        return None
    best: tuple[int, float] | None = None
    for code in machine_code(cubin):
        body = hottest_loop(code.words)
        if body is not None:
            words = code.words[body.start : body.stop]
            ffmas = sum(map(is_ffma, words))
            if best is None or ffmas > best[0]:
                best = ffmas, ffmas / loop_cycles(words)
    return None if best is None else best[1]
