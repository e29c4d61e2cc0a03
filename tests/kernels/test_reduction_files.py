"""The reduction ladder and the kernel in Triton, without a GPU: sums, planted mistakes, and what is compiled."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import cases_of, catalog, in_triton, rungs_of
from compiling import compiled_without_spills, listings, opcodes
from emulator.inputs import drawn, value
from emulator.launching import LOADS, assert_shows, launch, planted
from emulator.ptx import Array
from ladder.build.triton_request import compiler
from ladder.model.kernel import Variant
from ladder.model.problem import ELEMENT_BYTES
from ladder.problems.reduction.bounds import error_bound

FILES = rungs_of("memory_bound/reduction")
TRITON = "triton"
"""Right as far as Triton's interpreter tells."""
KERNELS = FILES | {TRITON: "triton_reduction"}
RUNS = cases_of(KERNELS)
BLOCK = 64
GRID = 3  # blocks of the rungs that step over the line; 3 x 64 threads take several rounds, and vectors a rest
LONG = 2 * GRID * BLOCK * 4 * 4 + 7
SIZES = (1, 2, 3, 31, 33, 64, 65, 257, 1031, LONG)


def variant(rung: str, dtype: str = "fp32", **params: Any) -> Variant:
    small: dict[str, Any] = {"block": 2048 if rung == TRITON else BLOCK}
    if rung == "8":
        small |= {"stages": 2, "stage": 1024}
    return catalog()[KERNELS[rung]].variant(small | params, dtype)


def summed(
    one: Variant, numbers: Array, **more: Any
) -> tuple[np.float32, list[tuple[str, int, int]]]:
    """The output, which begins as NaN, and accesses to shared memory."""
    size = {"elements": len(numbers)}
    if "blocks" in one.params:
        more["clusters"] = min(one.geometry(size).grid[0], GRID)
    buffers = {"input": numbers, "output": np.full(1, np.nan, np.float32)}
    made, accesses = launch(one, buffers, size, **more)
    return made[0], accesses


def is_wrong(one: Variant, numbers: Array, kind: str = "uniform", **more: Any) -> bool:
    """Whether a sum is, by the rule of the problem."""
    wide = value(numbers, one.dtype)
    error = abs(float(summed(one, numbers, **more)[0]) - wide.sum())
    return not error <= error_bound(len(numbers), kind) * np.abs(wide).sum()


@pytest.mark.parametrize(("rung", "dtype"), RUNS)
def test_sums_are_right_at_every_length(rung: str, dtype: str) -> None:
    """Integers exactly; blocks come in another order each time, and copies land early or late."""
    one = variant(rung, dtype)
    for at, count in enumerate(SIZES):
        for kind in ("integers", "uniform") if count < 500 else ("wide",):
            numbers = drawn(dtype, count, 7 + count, kind)
            order = {"arrivals": at, "loads": LOADS[at % 2]}
            assert not is_wrong(one, numbers, kind, **order), (count, kind)


@pytest.mark.parametrize(
    ("rung", "params", "count"),
    [
        (TRITON, {}, 2048 * (2 * GRID + 2) + 7),
        # A ring that goes round several times, and other numbers of loads.
        ("8", {"stages": 2}, GRID * 256 * 7 + 3),
        ("8", {"stages": 4}, GRID * 256 * 9 + 130),
        *(
            (rung, {"loads": loads}, GRID * BLOCK * 4 * (loads + 1) + 5)
            for rung in "67"
            for loads in (1, 2, 8)
        ),
    ],
)
def test_other_parameters_are_right(
    rung: str, params: dict[str, int], count: int
) -> None:
    numbers = drawn("fp32", count, 3, "integers")
    for loads in LOADS:
        assert not is_wrong(variant(rung, **params), numbers, "integers", loads=loads)


def test_one_order_gives_the_same_bits_whoever_comes_last() -> None:
    numbers = drawn("fp32", 1000, 5)
    for rung, same in (("7", True), ("1", False)):
        sums = {
            summed(variant(rung), numbers, arrivals=arrivals)[0].tobytes()
            for arrivals in range(6)
        }
        assert (len(sums) == 1) is same, rung


def test_sequential_addressing_has_no_bank_conflicts_and_interleaved_has() -> None:
    """Wavefronts of the first warp while all of it is at work, as the file says."""
    numbers = drawn("fp32", 256, 5)
    for rung, ways in (("2", {1, 2, 4, 8}), ("3", {1})):
        _, accesses = summed(variant(rung, block=256), numbers, notes=True)
        assert {count for *_, count in accesses} == ways, rung


BARRIER = "before the barrier"
OUTSIDE = "outside"
WRONG = "wrong"
UNSEEN = "handed over"
ZEROS = "zero"
TREE = "        __syncthreads();  // the tree before is done\n"
ROUND = "        __syncthreads();  // the sums of the round before are written\n"
WARPS = "    __syncthreads();  // the sums of all warps are written\n"
LAST = "is_last_slice(&total->blocks, gridDim.x)"
MISTAKES: list[tuple[str, str, str, str]] = [
    # Rung, what is changed, into what, and how it shows.
    ("1", "if (i < elements)", "if (i <= elements)", OUTSIDE),
    ("1", "atomicExch(&total->sum, 0.0f)", "total->sum", ZEROS),
    ("1", f"{LAST} &&", "", UNSEEN),
    ("2", ROUND, "", BARRIER),
    ("2", TREE, "", BARRIER),
    ("3", TREE, "", BARRIER),
    ("3", ROUND, "", BARRIER),
    ("4", WARPS, "", BARRIER),
    (
        "4",
        "    __syncthreads();  // the first warp has read the sums before\n",
        "",
        BARRIER,
    ),
    ("4", "if (threadIdx.x == 0) atomicAdd", "atomicAdd", WRONG),
    ("5", "i < elements; i", "i <= elements; i", OUTSIDE),
    ("5", f"{LAST} &&", "", UNSEEN),
    ("6", "i + (Loads - 1) * stride < vectors", "i < vectors", OUTSIDE),
    ("7", "if (!is_last_slice(arrived, gridDim.x)) return;", "", ""),
    ("8", "barriers.wait_until_empty(at);", "", "more arrivals"),
    ("8", "mbarrier_wait(barriers.full[at.stage], at.parity);", "", "for ever"),
    ("8", "barriers.init(Block / 32)", "barriers.init(1)", "for ever"),
    (
        "8",
        "first + room < vectors ? room : static_cast<int>(vectors - first)",
        "room",
        OUTSIDE,
    ),
    (TRITON, "if own == 0:", "if own < 0:", WRONG),
    (TRITON, "lanes < elements - whole", "lanes < elements - whole - 1", WRONG),
    (TRITON, "whole, blocks * BLOCK", "whole, blocks * BLOCK * 2", WRONG),
    (TRITON, "mask=lanes < blocks", "mask=lanes < blocks - 1", WRONG),
    (TRITON, "== blocks - 1", "== blocks - 2", ZEROS),
    (TRITON, "        tl.store(counter, 0)\n", "", ZEROS),
    (
        TRITON,
        "of_lanes += tl.load(input + first",
        "of_lanes = tl.load(input + first",
        WRONG,
    ),
    (
        "1",
        "    __syncthreads();  // the sums of all threads are written\n",
        "",
        UNSEEN,
    ),
    ("1", "atom.acq_rel", "atom.relaxed", UNSEEN),
]


@pytest.mark.parametrize(("rung", "right", "mistaken", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, rung: str, right: str, mistaken: str, shows: str
) -> None:
    """As a wrong sum, as memory that is not zero again, or as what the emulator refuses."""
    one = variant(rung)
    more = planted(tmp_path, one.kernel.source, right, mistaken)
    counts = {TRITON: 2048 * (GRID + 2) + 6} | dict.fromkeys("5678", LONG)
    numbers = drawn("fp32", counts.get(rung, 259), 11)
    assert_shows(shows, partial(is_wrong, one, numbers, **more))


def test_each_compiles_for_hopper_and_vectors_are_asked_for_before_any_is_added() -> (
    None
):
    cases = cases_of(FILES)
    variants = [catalog()[FILES[rung]].variant({}, dtype) for rung, dtype in cases]
    cubins = compiled_without_spills(variants)
    for (rung, dtype), listing in zip(cases, listings(cubins, "sm_90a"), strict=True):
        kinds = ""
        for line in listing:
            if "LDG" in line and ".128" in line:
                kinds += "L"
            elif "FADD" in line:
                kinds += "+"
        assert ("LLLL+" in kinds) is (rung in "67"), (rung, dtype, kinds)


@pytest.mark.skipif(not compiler(), reason="Triton is not installed")
def test_each_in_triton_loads_vectors_spills_nothing_and_hands_sums_over_in_order() -> (
    None
):
    # Written, met, made visible and counted; then what others wrote is read past the L1.
    steps = (
        r"STG\.E",
        "BAR",
        r"MEMBAR\S*GPU",
        r"ATOMG\S*ADD\S*GPU",
        r"CCTL\.IVALL",
        "BAR",
        r"LDG\.E\.STRONG\.GPU",
    )
    order = r"\S*( \S+)*? ".join(steps)
    wanted = ("STG", "BAR", "MEMBAR", "ATOMG", "CCTL", "LDG.E.STRONG")
    variants = in_triton("reduction_libraries")
    for one, cubin in zip(variants, compiled_without_spills(variants), strict=True):
        found = opcodes(cubin, "sm_90a")
        block, warps = (int(one.params[name]) for name in ("block", "warps"))
        assert (
            found.count("LDG.E.128")
            == block // (32 * warps) * ELEMENT_BYTES[one.dtype] // 16
        ), one.id
        assert re.search(
            order, " ".join(each for each in found if each.startswith(wanted))
        ), (one.id, found)
