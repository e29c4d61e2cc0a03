"""The ladder of thin products, without a GPU: outputs on the emulator, planted mistakes, what is compiled."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx, compiled_without_spills, opcodes
from conftest import ROOT
from emulator.hopper import arguments_of
from emulator.hopper_ptx import HopperMachine, parse_hopper
from emulator.inputs import drawn, value
from emulator.ptx import Array, Fault, Memory
from emulator.sum_ptx import BulkSumMachine, SumMachine
from emulator.tensor_ptx import from_bits, parse_tensor
from ladder.catalogue.kernels import load_kernel
from ladder.model.kernel import Kernel, Variant
from ladder.problems.gemm.bounds import ROUNDING, accumulation_bound

FOLDER, INCLUDE = (
    ROOT / "kernels" / "memory_bound" / "gemv",
    ROOT / "kernels" / "include",
)
FILES = {path.stem[0]: path.stem for path in sorted(FOLDER.glob("*.cu"))}
SIZES = ((1, 1, 1), (1, 9, 67), (3, 5, 33), (5, 33, 131))
ALIGNED = ((1, 1, 8), (1, 22, 1144), (3, 5, 264), (5, 18, 2056))
"""M, N and K of kernels that take whole 16 bytes."""
SMALL: dict[str, dict[str, int]] = {
    "1": {"block": 32},
    "2": {"block": 64},
    "3": {"block": 64, "loads": 2},
    "4": {"block": 64, "loads": 2, "part": 64},
    "5": {"block": 64, "loads": 2, "slices": 2},
    "6": {"block": 64, "stages": 2, "line": 512, "blocks": 132},
    "7": {"warps": 2, "batch": 8, "rows": 16},
    "8": {"stages": 3},
}


@functools.cache
def kernel(rung: str) -> Kernel:
    return load_kernel(FOLDER / f"{FILES[rung]}.yaml")


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    return kernel(rung).variant(SMALL[rung] | params, dtype, "TN")


def words(elements: Array) -> Array:
    """As 32-bit words; behind an odd number of 16-bit elements lies a NaN."""
    return np.frombuffer(
        elements.tobytes() + b"\xff" * (-elements.nbytes % 4), np.uint32
    )


def launch(
    given: Variant,
    size: tuple[int, int, int],
    alpha: float = 1.0,
    beta: float = 0.0,
    text: str = "",
    loads: str = "early",
    blocks: int = 2,
) -> float:
    """The largest error over its bound of a launch on an output that holds NaN, or numbers where beta is not 0.

    A grid that steps over the rows has as many `blocks`.
    """
    (m, n, k), dtype = size, given.dtype
    shape = {"m": m, "n": n, "k": k}
    rule = given.geometry(shape)
    a, b, c = (drawn(dtype, count, 11 + count) for count in (m * k, n * k, m * n))
    before = c if beta else np.frombuffer(b"\xff" * c.nbytes, c.dtype)
    memory = Memory()
    pointers = [memory.buffer(0, words(one), writable=False) for one in (a, b)]
    pointers.append(memory.buffer(0, words(before), writable=True))
    memory.readable = np.where(memory.writable >= 0, memory.writable, memory.readable)
    ptx = compile_ptx(given.kernel.source, given.entry, [INCLUDE], text or None)
    scalars = [int(np.float32(one).view(np.uint32)) for one in (alpha, beta)]
    arguments, threads = [*pointers, m, n, k, *scalars], rule.block[0]
    machine: BulkSumMachine | HopperMachine | SumMachine
    if given.kernel.name == FILES["8"]:
        held = {
            "a": (pointers[0], a.reshape(m, k)),
            "b": (pointers[1], b.reshape(n, k)),
            "c": (pointers[2], c),
        }
        arguments, maps, _ = arguments_of(
            given, memory, held, {**shape, "alpha": alpha, "beta": beta}
        )
        program = parse_hopper(ptx, rule.shared_bytes)
        machine = HopperMachine(
            program, memory, threads, rule.grid[:2], 1, arguments, maps, loads
        )
    elif "cp.async.bulk" in ptx:
        grid = (min(rule.grid[0], blocks), *rule.grid[1:])
        machine = BulkSumMachine(
            parse_hopper(ptx, rule.shared_bytes),
            memory,
            threads,
            grid,
            arguments,
            loads=loads,
        )
    else:
        machine = SumMachine(
            parse_tensor(ptx, rule.shared_bytes), memory, threads, rule.grid, arguments
        )
    machine.run()
    bits = memory.words[pointers[2] // 4 :].view(c.dtype)
    if m * n * c.itemsize % 4:
        assert bits.view(np.uint16)[m * n] == 0xFFFF, "it wrote behind its output"
    found = bits[: m * n] if dtype == "fp32" else from_bits(bits[: m * n], "bf16")
    left, right = value(a, dtype).reshape(m, k), value(b, dtype).reshape(n, k)
    old = beta * value(c, dtype).reshape(m, n)
    expected = alpha * (left @ right.T) + old
    magnitude = abs(alpha) * (np.abs(left) @ np.abs(right).T) + np.abs(old)
    bound = (
        ROUNDING[dtype] * np.abs(expected) + accumulation_bound(dtype, k) * magnitude
    )
    return float(np.max(np.abs(found.reshape(m, n) - expected) / bound))


def test_the_ladder_has_files_of_about_a_page() -> None:
    assert "".join(FILES) == "12345678"
    for name in FILES.values():
        assert (
            len((FOLDER / f"{name}.cu").read_text(encoding="utf-8").splitlines()) <= 95
        ), name


CASES = [(rung, dtype) for rung in FILES for dtype in kernel(rung).dtypes]


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_outputs_are_right_at_every_shape(rung: str, dtype: str) -> None:
    """With alpha and beta too; bulk copies land as late as they may, and as early."""
    for place, size in enumerate(SIZES if rung in "12" else ALIGNED):
        scalars = ((1.0, 0.0), (-1.5, 0.5))[place % 2]
        for loads in ("late", "early") if rung in "68" else ("early",):
            given = variant(
                rung, dtype, **({"batch": 4} if rung in "456" and size[0] > 1 else {})
            )
            assert given.absent({"m": size[0], "n": size[1], "k": size[2]}) is None
            assert launch(given, size, *scalars, loads=loads) <= 1.0, (size, loads)


@pytest.mark.parametrize("rung", ["4", "5", "6"])
def test_sixteen_rows_share_a_reading(rung: str) -> None:
    for dtype, rows in (("fp32", 2), ("bf16", 4 if rung != "6" else 1)):
        given = variant(
            rung, dtype, batch=16, rows=rows, **({"loads": 1} if rung != "6" else {})
        )
        assert launch(given, (16, 11, 264)) <= 1.0, dtype


def test_a_lane_of_the_ring_stores_two_outputs() -> None:
    for dtype, m in (("fp32", 16), ("fp32", 13), ("bf16", 19)):
        assert launch(variant("6", dtype, batch=16, rows=4), (m, 37, 328)) <= 1.0


def test_sixteen_rows_are_two_products_of_the_tensor_cores() -> None:
    for rows in (16, 32):
        assert launch(variant("7", "bf16", batch=16, rows=rows), (13, 37, 328)) <= 1.0


@pytest.mark.parametrize("loads", ["late", "early"])
def test_rows_and_columns_of_several_blocks_of_the_ring(loads: str) -> None:
    """The ring is passed through more than once, and no block is whole."""
    assert launch(variant("8", "bf16"), (19, 70, 648), 0.75, 0.5, loads=loads) <= 1.0


def test_kernels_of_whole_vectors_say_which_sizes_they_take() -> None:
    for rung, dtype in CASES:
        given = variant(rung, dtype)
        takes = {k: given.absent({"m": 1, "n": 5, "k": k}) is None for k in (8, 12, 10)}
        assert takes == {
            8: True,
            12: rung in "12" or dtype == "fp32",
            10: rung in "12",
        }, (rung, dtype)


OUTSIDE, WRONG, EARLY = "outside", "wrong", "before the"
PART, SLICE = (
    "    __syncthreads();  // the part is there\n",
    "    __syncthreads();  // the slice of x is there\n",
)
MISTAKES: list[tuple[str, str, str, str]] = [
    # Rung, what is changed, into what, and how it shows.
    ("1", "column >= n", "column > n", OUTSIDE),
    ("2", "column >= n", "column > n", OUTSIDE),
    (
        "3",
        "for (; i < vectors; i += 32) add",
        "for (; i + 32 < vectors; i += 32) add",
        WRONG,
    ),
    ("3", "i + (Loads - 1) * 32 < vectors", "i < vectors", OUTSIDE),
    ("4", "min(first_of_b + r, n - 1)", "(first_of_b + r)", OUTSIDE),
    ("4", "        __syncthreads();  // all have read the part before\n", "", EARLY),
    ("4", "    " + PART, "", EARLY),
    ("4", "of_a < m && at < end", "at < end", OUTSIDE),
    ("5", "    cluster_barrier();  // the sums of all blocks are written\n", "", EARLY),
    (
        "5",
        "    cluster_barrier();  // no block leaves while its sums are read\n",
        "",
        "may leave",
    ),
    ("5", SLICE, "", EARLY),
    ("5", "of_a < m && of_b < n", "of_b < n", OUTSIDE),
    ("6", "barriers.wait_until_empty(at);", "", "more arrivals"),
    ("6", "mbarrier_wait(barriers.full[at.stage], at.parity);", "", "more arrivals"),
    ("6", "barriers.init(Block / 32)", "barriers.init(1)", "for ever"),
    ("6", "min(room, vectors - first)", "room", OUTSIDE),
    ("7", "row < n && at < k", "row < n", OUTSIDE),
    ("7", "row < m && at < k", "at < k", OUTSIDE),
    ("7", "    __syncthreads();  // the sums of all warps are written\n", "", EARLY),
    ("8", "ring.wait_until_empty(at);", "", "more arrivals"),
    ("8", "ring.wait_until_full(at);", "", "for ever"),
    ("8", "wgmma_wait<1>();  // those of the step before", "", WRONG),
    ("8", "ring.init(warpgroup_threads / 32)", "ring.init(1)", "for ever"),
    ("8", "of_a < m && of_b < n", "of_a < m && of_b <= n", OUTSIDE),
]


@pytest.mark.parametrize(("rung", "right", "mistaken", "shows"), MISTAKES)
def test_mistakes_show(rung: str, right: str, mistaken: str, shows: str) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    given = variant(
        rung,
        "bf16" if rung in "78" else "fp32",
        **({"batch": 4} if rung in "456" else {}),
    )
    text = given.kernel.source.read_text(encoding="utf-8")
    assert text.count(right) == 1, right
    saw, size = "", (3, 70 if rung == "8" else 9, 664 if rung in "78" else 652)
    for loads in ("late", "early") if rung in "68" else ("early",):
        try:
            found = launch(given, size, text=text.replace(right, mistaken), loads=loads)
            saw += "" if found <= 1.0 else "wrong"
        except Fault as fault:
            saw += str(fault)
    assert saw
    assert shows in saw


def test_each_compiles_for_hopper_without_spills_and_several_loads_are_under_way() -> (
    None
):
    cubins = compiled_without_spills(
        [kernel(rung).variant({}, dtype, "TN") for rung, dtype in CASES]
    )
    for (rung, dtype), cubin in zip(CASES, cubins, strict=True):
        found = opcodes(cubin, "sm_90a")
        if rung in "37":
            first = next(
                place
                for place, one in enumerate(found)
                if one.startswith(("FFMA", "HMMA"))
            )
            wide = [
                one for one in found[:first] if one.startswith("LDG") and ".128" in one
            ]
            assert len(wide) >= 4, (rung, dtype)
