"""Tiles of C, each exactly once, and what the ring waits for at each step; blocks of a cluster that share operands."""

from __future__ import annotations

import re

from conftest import ROOT
from emulator.hopper import hold, refute

TILES = """
#include "schedule/tile_scheduler.cuh"

template <int Raster, int ClusterM, int ClusterN>
__host__ __device__ constexpr bool covers(int m, int n, int clusters) {
    using Cluster = ClusterShape<ClusterM, ClusterN>;
    const TileScheduler<128, 256, Cluster, Raster> scheduler(m, n);
    const int rows = scheduler.rows * ClusterM, columns = scheduler.columns * ClusterN;
    if (rows * 128 < m || columns * 256 < n || (scheduler.rows - 1) * ClusterM * 128 >= m) return false;
    bool seen[1024] = {};
    int count = 0;
    for (int cluster = 0; cluster < clusters; ++cluster) {
        for (int tile = cluster; tile < scheduler.tiles(); tile += clusters) {
            for (int rank = 0; rank < Cluster::size; ++rank) {
                const TilePosition at = scheduler.origin(tile, rank);
                if (at.row % 128 != 0 || at.column % 256 != 0) return false;
                const int row = at.row / 128, column = at.column / 256;
                if (row < 0 || row >= rows || column < 0 || column >= columns) return false;
                bool& here = seen[row * columns + column];
                if (here) return false;
                here = true;
                ++count;
            }
        }
    }
    return count == rows * columns;
}

__host__ __device__ constexpr bool curve_is_connected(int rows, int columns) {
    TilePosition last = hilbert_position(0, rows, columns);
    for (int tile = 1; tile < rows * columns; ++tile) {
        const TilePosition at = hilbert_position(tile, rows, columns);
        const int down = at.row - last.row, right = at.column - last.column;
        if (down > 1 || down < -1 || right > 1 || right < -1) return false;
        last = at;
    }
    return true;
}

__host__ __device__ constexpr bool all_curves(int most) {
    for (int rows = 1; rows <= most; ++rows) {
        for (int columns = 1; columns <= most; ++columns) {
            if (!curve_is_connected(rows, columns)) return false;
        }
    }
    return true;
}

template <int Rows, int Columns>
__host__ __device__ constexpr bool shares() {
    using Cluster = ClusterShape<Rows, Columns>;
    for (int rank = 0; rank < Cluster::size; ++rank) {
        int partners = 0;
        for (int other = 0; other < Cluster::size; ++other) {
            const bool same_row = rank / Columns == other / Columns, same_column = rank % Columns == other % Columns;
            if ((Cluster::row_mask(rank) >> other & 1) != same_row) return false;
            if ((Cluster::column_mask(rank) >> other & 1) != same_column) return false;
            if (Cluster::are_partners(rank, other) != (same_row || same_column)) return false;
            partners += same_row || same_column;
        }
        if (partners != Cluster::partners) return false;
        if (Cluster::row_mask(rank) >> Cluster::size || Cluster::column_mask(rank) >> Cluster::size) return false;
    }
    return true;
}
"""

EVEN = """
#include "schedule/even_tiles.cuh"

constexpr int blocks = 132;

// The most columns of a cluster's tiles together, or 0 where some of C is nobody's or twice somebody's.
template <int Raster, int Narrow, int ClusterM>
__host__ __device__ constexpr int longest(int m, int n) {
    constexpr int clusters = blocks / ClusterM, tall = 128 * ClusterM;
    const EvenTiles<128, 256, Narrow, ClusterShape<ClusterM, 1>, Raster> tiles(m, n, clusters);
    int done[32] = {}, ends[32][8192 / 16] = {}, all[clusters] = {}, most = 0;
    for (int tile = 0; tile < tiles.tiles(); ++tile) {
        const TilePosition at = tiles.origin(tile, 0);
        const int width = tiles.is_narrow(tile) ? Narrow : 256, row = at.row / tall, end = at.column + width;
        if (at.row % tall != 0 || at.row >= m || at.column >= n || at.column % 16 != 0) return 0;
        if (tiles.origin(tile, ClusterM - 1).row != at.row + tall - 128) return 0;
        all[tile % clusters] += width;
        done[row] += const_min(width, n - at.column);
        // Where one tile ends another begins.
        if (end < n) ++ends[row][end / 16];
        if (at.column > 0) --ends[row][at.column / 16];
    }
    for (int row = 0; row * tall < m; ++row) {
        if (done[row] != n) return 0;
        for (const int left : ends[row]) {
            if (left != 0) return 0;
        }
    }
    for (const int one : all) most = const_max(most, one);
    return most;
}

// Blocks whose tiles are so many columns wide together.
__host__ __device__ constexpr int blocks_with(int columns, int m, int n) {
    const EvenTiles<128, 256, 240, ClusterShape<1, 1>, 8> tiles(m, n, blocks);
    int all[blocks] = {}, found = 0;
    for (int tile = 0; tile < tiles.tiles(); ++tile) all[tile % blocks] += tiles.is_narrow(tile) ? 240 : 256;
    for (const int one : all) found += one == columns;
    return found;
}
"""


def test_tiles_of_two_widths_cover_c_and_share_it_out() -> None:
    """A block's columns in the worst case, where whole tiles are 1024, 1024, 1536 and 256 for all."""
    hold(
        EVEN,
        "longest<8, 240, 1>(4096, 4096) == 1008",
        "longest<4, 240, 1>(2048, 8192) == 1008",
        "longest<8, 240, 1>(4096, 6144) == 1504",
        "longest<8, 240, 2>(4096, 6144) <= 1520 && longest<8, 240, 2>(4096, 6144) > 0",
        "longest<hilbert, 224, 1>(1000, 4096) > 0",
        "longest<0, 192, 1>(1000, 2056) > 0",
        "longest<8, 240, 1>(2048, 2048) == 256",
        "longest<8, 240, 1>(1, 8) == 240",
    )
    mistaken = EVEN.replace("Narrow : 256, row", "Narrow + 16 : 256, row")
    refute(mistaken, "longest<8, 240, 1>(4096, 4096) > 0")


def test_the_head_of_two_widths_counts_blocks_and_their_work_at_4096() -> None:
    head = (
        (ROOT / "kernels/gemm/hopper/6e_two_widths.cu")
        .read_text()
        .replace("\n// ", " ")
    )
    (count,) = re.findall(
        r"(\d+) blocks get two wide and two narrow tiles, as much work as 3.875 wide ones",
        head,
    )
    (most,) = re.findall(r"The most that a block gets is ([\d.]+), instead of 4", head)
    hold(EVEN, f"blocks_with(2 * 256 + 2 * 240, 4096, 4096) == {count}")
    hold(EVEN, f"longest<8, 240, 1>(4096, 4096) == {round(float(most) * 16) * 16}")


def test_every_tile_has_one_block() -> None:
    sizes = [(1, 8, 1), (128, 256, 3), (1000, 1000, 5), (129, 2056, 2), (2304, 776, 66)]
    hold(
        TILES,
        *(
            f"covers<{raster}, {rows}, {columns}>({m}, {n}, {clusters})"
            for raster in (0, 2, 8, "hilbert")
            for rows, columns in ((1, 1), (2, 1), (1, 2), (2, 2))
            for m, n, clusters in sizes
        ),
    )


def test_the_curve_never_jumps() -> None:
    hold(
        TILES,
        "all_curves(12)",
        "curve_is_connected(31, 17)",
        "curve_is_connected(8, 32)",
    )
    mistaken = TILES.replace("hilbert_position(tile", "tile_position<0>(tile")
    refute(mistaken, "all_curves(12)")


def test_blocks_of_a_cluster_know_whom_they_share_with() -> None:
    hold(
        TILES,
        "shares<1, 1>()",
        "shares<2, 1>()",
        "shares<1, 2>()",
        "shares<2, 2>()",
        "shares<4, 2>()",
    )


def test_the_ring_walks_stages_and_parities_in_order() -> None:
    walk = """
#include "schedule/ring.cuh"
template <int Stages>
__host__ __device__ constexpr bool walks() {
    RingPosition<Stages> at;
    for (int step = 0; step < 5 * Stages; ++step, at.advance()) {
        if (at.stage != step % Stages || at.parity != step / Stages % 2) return false;
    }
    return true;
}
"""
    hold(walk, "walks<2>()", "walks<3>()", "walks<4>()", "walks<7>()")
