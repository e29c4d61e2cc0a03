"""The ladder of thin products, without a GPU: outputs on the emulator, planted mistakes, what is compiled."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout import cases_of, catalog, rungs_of
from compiling import compiled_without_spills, opcodes
from emulator.launching import LOADS, assert_shows, planted, wrong
from ladder.model.kernel import Variant

FILES = rungs_of("memory_bound/gemv")
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


CASES = cases_of(FILES)


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    return catalog()[FILES[rung]].variant(SMALL[rung] | params, dtype, "TN")


def is_wrong(
    one: Variant, size: tuple[int, int, int], beta: float = 0.5, **more: Any
) -> int:
    """Of a grid that steps over the rows two blocks start."""
    m, n, k = size
    blocks = one.geometry({"m": m, "n": n, "k": k}).grid[0]
    if "blocks" in one.params:
        more["clusters"] = min(blocks, 2)
    return wrong(one, size, beta, **more)


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_outputs_are_right_at_every_shape(rung: str, dtype: str) -> None:
    """With alpha and beta too; copies land as late as they may, and as early."""
    for place, (m, n, k) in enumerate(SIZES if rung in "12" else ALIGNED):
        one = variant(rung, dtype, **({"batch": 4} if rung in "456" and m > 1 else {}))
        assert one.absent({"m": m, "n": n, "k": k}) is None
        for loads in LOADS:
            beta = 0.5 * (place % 2)
            assert is_wrong(one, (m, n, k), beta, loads=loads) == 0, (m, loads)


OTHERS: list[tuple[str, str, dict[str, int], tuple[int, int, int]]] = [
    # Sixteen rows share a reading; a lane of the ring stores two outputs; two products of the tensor cores.
    ("4", "fp32", {"batch": 16, "rows": 2, "loads": 1}, (16, 11, 264)),
    ("4", "bf16", {"batch": 16, "rows": 4, "loads": 1}, (16, 11, 264)),
    ("5", "fp32", {"batch": 16, "rows": 2, "loads": 1}, (16, 11, 264)),
    ("5", "bf16", {"batch": 16, "rows": 4, "loads": 1}, (16, 11, 264)),
    ("6", "fp32", {"batch": 16, "rows": 4}, (13, 37, 328)),
    ("6", "bf16", {"batch": 16, "rows": 4}, (19, 37, 328)),
    ("7", "bf16", {"batch": 16, "rows": 32}, (13, 37, 328)),
    # The ring is passed through more than once, and no block is whole.
    ("8", "bf16", {}, (19, 70, 648)),
]


@pytest.mark.parametrize(("rung", "dtype", "params", "size"), OTHERS, ids=str)
def test_other_batches_are_right(
    rung: str, dtype: str, params: dict[str, int], size: tuple[int, int, int]
) -> None:
    for loads in LOADS:
        one = variant(rung, dtype, **params)
        assert is_wrong(one, size, beta=0.0, loads=loads) == 0


OUTSIDE = "outside"
WRONG = "wrong"
EARLY = "before the"
PART = "    __syncthreads();  // the part is there\n"
SLICE = "    __syncthreads();  // the slice of x is there\n"
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
def test_mistakes_show(
    tmp_path: Path, rung: str, right: str, mistaken: str, shows: str
) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    params = {"batch": 4} if rung in "456" else {}
    one = variant(rung, "bf16" if rung in "78" else "fp32", **params)
    more = planted(tmp_path, one.kernel.source, right, mistaken)
    size = (3, 70 if rung == "8" else 9, 664 if rung in "78" else 652)
    assert_shows(shows, partial(is_wrong, one, size, **more))


@pytest.mark.parametrize(("rung", "dtype"), [one for one in CASES if one[0] in "37"])
def test_several_loads_are_under_way(rung: str, dtype: str) -> None:
    one = catalog()[FILES[rung]].variant({}, dtype, "TN")
    (cubin,) = compiled_without_spills([one])
    ahead = itertools.takewhile(
        lambda opcode: not opcode.startswith(("FFMA", "HMMA")),
        opcodes(cubin, "sm_90a"),
    )
    assert sum(opcode.startswith("LDG") and ".128" in opcode for opcode in ahead) >= 4
