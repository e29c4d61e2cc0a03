"""Tiles of two heights: which rows they cover, and how even their waves are."""

from __future__ import annotations

import functools
import heapq

import numpy as np
import pytest
from compiling import compile_ptx
from conftest import ROOT
from emulator.grid_ptx import GridMachine
from emulator.hopper import INCLUDE
from emulator.ptx import Array, Memory, Program, parse
from hypothesis import example
from hypothesis import given as drawn
from hypothesis import strategies as st
from ladder.catalogue.kernels import load_kernel

pytestmark = pytest.mark.slow

KERNEL = load_kernel(ROOT / "kernels/gemm/simt/gemm_short_tiles.yaml")


@functools.cache
def _program(height: int) -> Program:
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
    return parse(compile_ptx(INCLUDE / "probe.cu", "probe", [INCLUDE], text), 0)


def schedule(height: int, rows: int, columns: int, tiles: int) -> Array:
    """Column, first row and rows of each tile, in the order of their start."""
    memory = Memory()
    out = memory.buffer(0, np.full(3 * tiles, 2**32 - 1, np.uint32), writable=True)
    grid = (-(-tiles // 32), 1, 1)
    arguments = [out, rows, columns, tiles]
    GridMachine(_program(height), memory, 32, grid, arguments).run()
    return memory.words[out // 4 : out // 4 + 3 * tiles].view(np.int32).reshape(3, -1).T


def makespan(tiles: Array, m: int, blocks: int = 132) -> int:
    """Rows of the multiprocessor that has most, where each takes the next tile when it is done with one."""
    busy = [0] * blocks
    for _, first, rows in tiles.tolist():
        if first < m:
            heapq.heapreplace(busy, busy[0] + rows)
    return max(busy)


def covers(tiles: Array, m: int, columns: int) -> bool:
    """Whether the tiles of each column follow one another, from row 0 to beyond row m."""
    for column in range(columns):
        own = tiles[tiles[:, 0] == column]
        own = own[np.argsort(own[:, 1], kind="stable")]
        ends = own[:, 1] + own[:, 2]
        if own[0, 1] != 0 or (own[1:, 1] != ends[:-1]).any() or ends[-1] < m:
            return False
    return bool((tiles[:, 0] >= 0).all() and (tiles[:, 0] < columns).all())


@drawn(
    height=st.sampled_from((112, 120)),
    m=st.integers(1, 5000),
    columns=st.integers(1, 40),
    more=st.integers(0, 140),
)
@example(height=112, m=8192, columns=32, more=64)
@example(height=112, m=1, columns=5, more=0)
def test_tiles_cover_every_row_once_and_tall_ones_come_first(
    height: int, m: int, columns: int, more: int
) -> None:
    tiles = schedule(height, m, columns, -(-m // 128) * columns + more)
    assert covers(tiles, m, columns)
    assert (np.diff(tiles[:, 2]) <= 0).all()


@pytest.mark.parametrize(
    ("height", "m", "n", "plain", "rows"),
    [
        (112, 8192, 8192, 2048, 2000),
        (120, 16384, 16384, 8064, 7944),
        (120, 4095, 4093, 512, 504),
        (112, 1024, 1024, 128, 112),
    ],
)
def test_multiprocessors_have_fewer_rows_to_do_than_with_plain_tiles(
    height: int, m: int, n: int, plain: int, rows: int
) -> None:
    columns = -(-n // 256)
    whole = np.full((-(-m // 128) * columns, 3), (0, 0, 128))
    assert makespan(whole, m) == plain
    one = KERNEL.variant({"short_rows": height}, "fp32")
    count = one.geometry({"m": m, "n": n, "k": 8}).grid[0]
    tiles = schedule(height, m, columns, count)
    assert covers(tiles, m, columns)
    assert makespan(tiles, m) == rows
