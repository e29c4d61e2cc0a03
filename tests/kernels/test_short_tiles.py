"""Tiles of two heights: which rows they cover, how even their waves are, and results of the kernel on the CPU."""

from __future__ import annotations

import functools
import heapq
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx
from conftest import ROOT, edit
from emulator.cluster_ptx import ClusterMachine
from emulator.hopper import INCLUDE, wrong_in_fp32
from emulator.ptx import Array, Fault, Memory, Program
from emulator.tensor_ptx import parse_tensor
from hypothesis import example
from hypothesis import given as drawn
from hypothesis import strategies as st
from ladder.catalogue.kernels import Catalog, load_kernel
from ladder.model.kernel import Variant
from test_fp32_ladder import run, variant

pytestmark = pytest.mark.slow

KERNEL = load_kernel(ROOT / "kernels" / "gemm" / "simt" / "gemm_short_tiles.yaml")
SMALL = {"bn": 64, "tn": 8, "stages": 3}
HEIGHTS = (112, 120)


def short(height: int, **params: Any) -> Variant:
    return KERNEL.variant({"short_rows": height, **params}, "fp32")


# Which tile is a block's.


@functools.cache
def _schedule(height: int) -> Program:
    text = f"""
#include "schedule/two_heights.cuh"
__global__ void probe(int* out, int rows, int columns, int tiles) {{
    const int number = blockIdx.x * 32 + threadIdx.x;
    if (number >= tiles) return;
    const TileOfTwo tile = TwoHeights<128, {height}>(rows, columns, tiles).tile(number);
    out[number] = tile.column;
    out[tiles + number] = int(tile.first_row);
    out[2 * tiles + number] = tile.tall ? 128 : {height};
}}
"""
    return parse_tensor(compile_ptx(INCLUDE / "probe.cu", "probe", [INCLUDE], text), 0)


def schedule(height: int, rows: int, columns: int, tiles: int) -> Array:
    """Column, first row and rows of each tile, in the order of their start."""
    memory = Memory()
    out = memory.buffer(0, np.full(3 * tiles, 2**32 - 1, np.uint32), writable=True)
    ClusterMachine(
        _schedule(height), memory, 32, -(-tiles // 32), 1, [out, rows, columns, tiles]
    ).run()
    return memory.words[out // 4 : out // 4 + 3 * tiles].view(np.int32).reshape(3, -1).T


def planned(height: int, m: int, n: int) -> Array:
    return schedule(
        height,
        m,
        -(-n // 256),
        short(height).geometry({"m": m, "n": n, "k": 8}).grid[0],
    )


def makespan(found: Array, m: int, blocks: int = 132) -> int:
    """Rows of the multiprocessor that has most, where each takes the next tile when it is done with one."""
    busy = [0] * blocks
    for _, first, rows in found.tolist():
        if first < m:
            heapq.heapreplace(busy, busy[0] + rows)
    return max(busy)


def covers(found: Array, m: int, columns: int) -> bool:
    """Whether the tiles of each column follow one another, from row 0 to beyond row m."""
    for column in range(columns):
        own = found[found[:, 0] == column]
        own = own[np.argsort(own[:, 1], kind="stable")]
        ends = own[:, 1] + own[:, 2]
        if own[0, 1] != 0 or (own[1:, 1] != ends[:-1]).any() or ends[-1] < m:
            return False
    return bool((found[:, 0] >= 0).all() and (found[:, 0] < columns).all())


@drawn(
    height=st.sampled_from(HEIGHTS),
    m=st.integers(1, 5000),
    columns=st.integers(1, 40),
    more=st.integers(0, 140),
)
@example(height=112, m=8192, columns=32, more=64)
@example(height=112, m=1, columns=5, more=0)
@example(height=120, m=4095, columns=16, more=16)
def test_tiles_cover_every_row_once_and_tall_ones_come_first(
    height: int, m: int, columns: int, more: int
) -> None:
    found = schedule(height, m, columns, -(-m // 128) * columns + more)
    assert covers(found, m, columns)
    assert (np.diff(found[:, 2]) <= 0).all()


@pytest.mark.parametrize(
    ("height", "m", "n", "plain", "rows"),
    [
        (112, 8192, 8192, 2048, 2000),
        (120, 16384, 16384, 8064, 7944),
        (120, 4096, 4096, 512, 504),
        (120, 4095, 4093, 512, 504),
        (112, 1024, 1024, 128, 112),
    ],
)
def test_multiprocessors_have_as_many_rows_to_do(
    height: int, m: int, n: int, plain: int, rows: int
) -> None:
    tiles = (
        variant(bm=128, bn=256, tn=16, bk=8).geometry({"m": m, "n": n, "k": 8}).grid[0]
    )
    assert makespan(np.full((tiles, 3), (0, 0, 128)), m) == plain
    found = planned(height, m, n)
    assert makespan(found, m) == rows
    if rows == plain:
        assert len(found) == tiles
        assert (found[:, 2] == 128).all()


@drawn(height=st.sampled_from(HEIGHTS), m=st.integers(1, 6000), n=st.integers(1, 6000))
def test_no_size_takes_longer_than_with_plain_tiles(
    height: int, m: int, n: int
) -> None:
    tiles, found = -(-m // 128) * -(-n // 256), planned(height, m, n)
    assert covers(found, m, -(-n // 256))
    assert makespan(found, m) <= -(-tiles // 132) * 128


# Results of the kernel's PTX. Some, all or none of a column's tiles are short.


LAUNCHES = [
    ((600, 132, 40), 15),  # 5 tiles in each of 3 columns
    ((601, 131, 21), 15),  # the same, word by word
    ((1500, 68, 24), 25),  # 12 and 13 tiles in 2 columns
    ((333, 65, 13), 9),  # many more than needed, of which some are below C
    ((1, 1, 1), 1),
    ((129, 7, 9), 4),
]


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize(("size", "tiles"), LAUNCHES, ids=str)
def test_results_are_right(size: tuple[int, int, int], tiles: int, height: int) -> None:
    assert wrong_in_fp32(short(height, **SMALL), size, tiles) == 0


@pytest.mark.parametrize("height", HEIGHTS)
def test_the_wide_tile_of_the_ladder_is_right(height: int) -> None:
    assert wrong_in_fp32(short(height), (250, 260, 40), 6) == 0
    assert wrong_in_fp32(short(height), (250, 259, 21), 6) == 0


@pytest.mark.parametrize("height", HEIGHTS)
def test_c_is_not_read_where_beta_is_0_and_scaled_where_k_is_0(height: int) -> None:
    assert wrong_in_fp32(short(height, **SMALL), (230, 68, 12), 4, beta=0.0) == 0
    assert wrong_in_fp32(short(height, **SMALL), (230, 65, 0), 4) == 0


@pytest.mark.parametrize(
    "params",
    [
        {"buffers": 1},
        {"stages": 2, "walk": "rows"},
        {"bk": 16, "stages": 5, "walk": "snake"},
    ],
    ids=str,
)
def test_copies_may_land_at_any_time(params: dict[str, Any]) -> None:
    """Also checks for races in shared memory: where all warps of a block go the same way."""
    one = short(112, **{**SMALL, **params})
    for (size, tiles), landing in [
        (launch, at) for launch in LAUNCHES[:4:2] for at in ("wait", "once")
    ]:
        assert run(one, size, landing, beta=0.5, tiles=tiles)[1] <= 1


MISTAKES = [
    (
        "include/layout/row_map.cuh",
        "in_tile / 4 - Groups - four",
        "in_tile / 4 - Groups - four - 1",
    ),
    ("include/layout/row_map.cuh", "row(first + rows) - row(first)", "rows"),
    (
        "include/copy/tile_copy.cuh",
        "(first_row + map.row(row(0)))",
        "(first_row + row(0))",
    ),
    (
        "include/copy/tile_copy.cuh",
        "first_row) - map.row(row(0))",
        "first_row) - row(0)",
    ),
    (
        "include/schedule/two_heights.cuh",
        "Index(at.row) * Short,",
        "Index(at.row) * Tall,",
    ),
    ("gemm/simt/gemm_short_tiles.cu", "thread_rows - (Tile::bm - ShortRows)", "0"),
]


@pytest.mark.parametrize(("file", "right", "mistake"), MISTAKES)
def test_mistakes_show(tmp_path: Path, file: str, right: str, mistake: str) -> None:
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    edit(tmp_path / "kernels" / file, right, mistake)
    kernel = Catalog(tmp_path / "kernels")["gemm_short_tiles"]
    found = 0
    for height, bn, (size, tiles) in (
        (112, 64, LAUNCHES[2]),
        (120, 64, LAUNCHES[1]),
        (112, 128, ((236, 8, 12), 2)),
    ):
        one = kernel.variant({"short_rows": height, **SMALL, "bn": bn}, "fp32")
        try:
            found = found or wrong_in_fp32(
                one, size, tiles, include=tmp_path / "kernels" / "include"
            )
        except Fault:
            found = 1
    assert found


# What is compiled.
