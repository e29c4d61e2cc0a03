"""How results leave (TmaStoreRing::store), by the PTX of a known thread: what lies where when a copy starts."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence

import pytest
from compiling import compile_ptx
from emulator.hopper import BOX, INCLUDE, LINE, WIDTHS, by_copy_engine

BLOCKS, ROW, COLUMN, BARRIER = 2, 1024, 4096, 3
"""Blocks of 64 rows, where they begin in C, and the warpgroup's barrier."""

Event = tuple[str | int, ...]


@functools.cache
def kernels(value: str, boxes: int, widths: Sequence[int]) -> dict[int, str]:
    """PTX of a kernel that stores, by its columns; all of one source."""
    source = "".join(
        f"""
extern "C" __global__ void kernel_{columns}(const __grid_constant__ TensorMap map, const float* sums) {{
    __shared__ TmaStoreRing<{value}, {columns}, {boxes}> ring;
    float sum[{BLOCKS}][{columns // 2}];
#pragma unroll
    for (int i = 0; i < {BLOCKS * columns // 2}; ++i) sum[i / {columns // 2}][i % {columns // 2}] = sums[i];
    int next = 0;
    ring.store<Evict::normal>(sum, map, {ROW}, {COLUMN}, 0, {BARRIER}, next);
}}
"""
        for columns in widths
    )
    text = f'#include "epilogue/warpgroup_store.cuh"\n{source}'
    ptx = compile_ptx(INCLUDE / "one.cu", f"kernel_{widths[0]}", [INCLUDE], text)
    _, *parts = re.split(r"\.entry kernel_(\d+)", ptx)
    return dict(zip(map(int, parts[::2]), parts[1::2], strict=True))


def stored(ptx: str) -> list[Event]:
    """What thread 0 does, in order. Sums are numbered as they lie in its registers, the blocks one after the other."""
    # Constants, and addresses in the ring as those; sums as they were loaded, and pairs of them in a word.
    known = {re.findall(r"\.shared \.align 1024 \.b8 (\w+)", ptx)[0]: 0}
    sums: dict[str, tuple[int, ...]] = {}

    def place(operand: str) -> int:
        base, _, offset = operand.strip("[]").partition("+")
        return (int(base) if base.isdecimal() else known[base]) + int(offset or 0)

    events: list[Event] = []
    for line in ptx[ptx.index("\n{") :].splitlines():
        opcode, _, rest = line.strip("\t {}").rstrip(";").partition(" ")
        to, *of = re.findall(r"%\w+|\[%?\w+(?:\+\d+)?\]|\w+", rest) or [""]
        if (opcode.startswith("mov.") and (of[0].isdecimal() or of[0] in known)) or opcode == "cvt.u32.u64":
            known[to] = place(of[0])
        elif opcode.startswith("add.s") and of[0] in known:
            known[to] = place(of[0]) + place(of[1])
        elif opcode == "ld.global.f32":
            sums[to] = (int(of[0].strip("[]").partition("+")[2] or 0) // 4,)
        elif opcode.startswith("cvt.rn."):
            sums[to] = sums[of[1]] + sums[of[0]]  # the second operand goes to the lower half
        elif opcode.startswith(("stmatrix", "st.shared")):
            events.append(("fill", place(to), *itertools.chain.from_iterable(sums[word] for word in of)))
        elif opcode.startswith("cp.async.bulk.tensor"):
            events.append(("copy", place(of[2]), place(of[0]), place(of[1])))
        elif opcode == "bar.sync":
            events.append(("barrier", place(to), place(of[0])))
        elif opcode.startswith("cp.async.bulk.wait_group"):
            events.append((opcode, int(to)))
        elif opcode.startswith(("fence", "cp.async.bulk.commit_group")):
            events.append((opcode,))
    return events


def wanted(size: int, columns: int, boxes: int) -> list[Event]:
    """The same by the rules: of the ring, TMA and the accumulators (thread 0: rows 0 and 8 of a block)."""
    line = next(line for line in (128, 64, 32) if columns * size % line == 0)
    width, barrier = line // size, ("barrier", BARRIER, 128)
    events: list[Event] = []
    filled = 0
    for block in range(BLOCKS):
        for begin in range(0, columns, LINE // size):
            at = filled % boxes * BOX
            parts = range(begin, min(begin + LINE // size, columns), width)
            events += [("cp.async.bulk.wait_group.read", boxes - 1), barrier]
            for copy, first in enumerate(parts):
                base, sum_ = at + copy * 64 * line, block * columns // 2 + first // 2
                # A stmatrix takes the sums of sixteen columns, whose first line thread 0 names; fp32 goes by pairs.
                step = 8 if size == 2 else 2
                for i in range(0, width // 2, step):
                    row, column = i // 2 % 2 * 8, i // 4 * 8
                    sums = range(sum_ + i, sum_ + i + step)
                    events.append(("fill", base + by_copy_engine(row, column * size, line), *sums))
            events += [("fence.proxy.async.shared::cta",), barrier]
            events += [
                ("copy", at + copy * 64 * line, COLUMN + first, ROW + 64 * block)
                for copy, first in enumerate(parts)
            ]
            events.append(("cp.async.bulk.commit_group",))
            filled += 1
    return events


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(("value", "size", "boxes"), [("__nv_bfloat16", 2, 2), ("float", 4, 4)])
def test_copies_of_a_box_take_what_was_filled_and_follow_one_another(
    value: str, size: int, boxes: int, columns: int
) -> None:
    assert stored(kernels(value, boxes, WIDTHS)[columns]) == wanted(size, columns, boxes)


def test_one_box_is_read_before_it_is_filled_again() -> None:
    assert stored(kernels("__half", 1, (80,))[80]) == wanted(2, 80, 1)
