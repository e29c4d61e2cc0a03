"""The ladder of transpositions, without a GPU: outputs on the emulator, planted mistakes, banks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import cases_of, catalog, rungs_of
from emulator.inputs import drawn
from emulator.launching import LOADS, assert_shows, launch, planted
from emulator.ptx import Array
from ladder.model.kernel import Variant

FILES = rungs_of("memory_bound/transpose")
SIZES = ((1, 1), (1, 37), (37, 1), (31, 33), (33, 31), (64, 64), (67, 5))
ALIGNED = ((8, 8), (8, 40), (40, 8), (64, 64), (72, 136), (136, 72))
"""Of kernels that take whole 16 bytes."""


CASES = cases_of(FILES)


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    return catalog()[FILES[rung]].variant(params, dtype)


def transposed(
    one: Variant, m: int, n: int, **more: Any
) -> tuple[Array, Array, list[tuple[str, int, int]]]:
    """The output of a drawn matrix, what it must be, and accesses. The first warp of a block comes first if it can."""
    bits = drawn(one.dtype, m * n, 11 * m + n)
    matrix = (bits.view(np.uint32) if one.dtype == "fp32" else bits).reshape(m, n)
    ones = np.full((n, m), -1, np.int64).astype(matrix.dtype)
    buffers = {"input": matrix, "output": ones}
    made, accesses = launch(
        one, buffers, {"m": m, "n": n}, behind=range(32, 1024), **more
    )
    return made, matrix.T, accesses


def wrong(one: Variant, m: int, n: int, **more: Any) -> int:
    """How many outputs are wrong."""
    made, right, _ = transposed(one, m, n, **more)
    return int((made != right).sum())


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_outputs_are_the_inputs_bits_at_every_shape(rung: str, dtype: str) -> None:
    """Copies of TMA land as late as they may, and as early."""
    for place, (m, n) in enumerate(SIZES if rung in "1234" else ALIGNED):
        one = variant(rung, dtype, **({"side": 1 + place % 2} if rung in "67" else {}))
        assert one.absent({"m": m, "n": n}) is None
        for loads in LOADS if rung in "67" else LOADS[:1]:
            assert wrong(one, m, n, loads=loads) == 0, (m, n, loads)


@pytest.mark.parametrize("rung", "1234")
def test_other_blocks_are_right(rung: str) -> None:
    for block in (128, 1024):
        assert wrong(variant(rung, "bf16", block=block), 35, 66) == 0


@pytest.mark.parametrize("strip", [0, 4, 16])
def test_strips_take_each_tile_once(strip: int) -> None:
    """With tiles of two widths, where the last strip is narrower, and the last tiles are cut."""
    for across, n in ((16, 328), (32, 264)):
        assert wrong(variant("8", "fp32", strip=strip, across=across), 136, n) == 0


@pytest.mark.parametrize(("rung", "dtype"), [case for case in CASES if case[0] > "1"])
def test_padding_and_xor_have_no_bank_conflicts_and_the_plain_tile_has(
    rung: str, dtype: str
) -> None:
    """Wide accesses take the fewest: four wavefronts for the 512 bytes of a warp's access, and of four matrices."""
    *_, accesses = transposed(variant(rung, dtype), 128, 128, notes=True)
    loads, stores = (
        {count for opcode, _, count in accesses if opcode.startswith(name)}
        for name in ("ld", "st")
    )
    if rung == "2":
        assert (loads, stores) == ({32 if dtype == "fp32" else 16}, {1})
    else:
        assert loads | stores == {1 if rung in "34" else 4}


BARRIER = "before the barrier"
OUTSIDE = "outside"
WRONG = "wrong"
WHOLE = "    __syncthreads();  // the tile is whole\n"
TURNED = "    __syncthreads();  // the turned tile is whole\n"
FENCE = "    fence_async_proxy();\n"
MISTAKES: list[tuple[str, str, str, str]] = [
    # Rung, what is changed, into what, and how it shows.
    ("1", "row < rows && ", "", OUTSIDE),
    ("1", "column < columns", "column <= columns", OUTSIDE),
    ("2", WHOLE, "", BARRIER),
    ("2", "tile[x][y + step]", "tile[y + step][x]", WRONG),
    ("3", WHOLE, "", BARRIER),
    ("4", WHOLE, "", BARRIER),
    ("4", "tile[y + step][x ^ (y + step)]", "tile[y + step][x]", WRONG),
    ("5", WHOLE, "", BARRIER),
    ("6", "mbarrier_wait(full, 0);", "", WRONG),
    ("6", TURNED, "", "before a barrier"),
    ("6", FENCE, "", "without fence.proxy.async"),
    (
        "6",
        "        wait_for_store_reads<0>();  // the memory is the next block's\n",
        "",
        "ends before",
    ),
    ("8", WHOLE, "", BARRIER),
    ("8", "row >= rows || column", "column", OUTSIDE),
    ("7", "mbarrier_wait(full, 0);", "", WRONG),
    ("7", TURNED, "", "before a barrier"),
    ("7", FENCE, "", "without fence.proxy.async"),
    ("7", "ldmatrix_trans", "ldmatrix", WRONG),
]


@pytest.mark.parametrize(("rung", "right", "mistaken", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, rung: str, right: str, mistaken: str, shows: str
) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    one = variant(rung, "bf16")
    more = planted(tmp_path, one.kernel.source, right, mistaken)
    n = 264 if rung in "5678" else 67
    assert_shows(shows, partial(wrong, one, 136, n, **more))
