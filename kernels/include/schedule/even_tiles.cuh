// Tiles of two widths, so that the last wave of persistent blocks is as full as the others. With tiles of BN
// columns alone the last wave leaves some multiprocessors idle: at M = N = 8192 there are 2048 tiles of
// 128 x 256 for 132 blocks, and 64 blocks have none in the sixteenth wave. Here the rows of tiles are
// divided into as many tiles as make whole waves, and some of these are Narrow columns wide. At 8192 that
// is 33 in each row: 17 of 256 columns and 16 of 240.
//
// Rows have c or c + 1 tiles; rows with c come first. Within a row, wide tiles come before narrow ones. So a
// raster of strips hands out wide tiles first, and every block gets about the same number of narrow ones.
#pragma once

#include "schedule/tile_scheduler.cuh"

// Some rows of tiles: `count` of them, each of `wide` tiles of BN columns and then narrow ones.
struct TileRows {
    int count, columns, wide;

    __host__ __device__ constexpr int tiles() const { return count * columns; }
};

// For `clusters` persistent clusters, each one tile wide; otherwise as TileScheduler.
template <int BM, int BN, int Narrow, class Cluster, int Raster>
struct EvenTiles {
    static_assert(Cluster::columns == 1 && 0 < Narrow && Narrow < BN, "one width per cluster");
    TileRows few, more;  // from the first row of C on

    __host__ __device__ constexpr EvenTiles(int m, int n, int clusters) : few{}, more{} {
        const int rows = ceil_div(m, BM * Cluster::rows), least = ceil_div(n, BN);
        const int most = const_max(least, n / Narrow);  // more would need narrower tiles
        const int tiles = ceil_div(rows * least, clusters) * clusters, columns = tiles / rows;
        more = row_of(columns + 1, most, n);
        few = row_of(columns, most, n);
        more.count = tiles - rows * columns;
        few.count = rows - more.count;
    }

    __host__ __device__ static constexpr TileRows row_of(int wanted, int most, int n) {
        const int columns = const_min(wanted, most);
        const int narrow = const_min(columns, (columns * BN - n) / (BN - Narrow));
        return {0, columns, columns - narrow};
    }

    __host__ __device__ constexpr int tiles() const { return few.tiles() + more.tiles(); }

    __host__ __device__ constexpr bool is_narrow(int tile) const {
        const bool first = tile < few.tiles();
        return position(tile).column >= (first ? few : more).wide;
    }

    // The first row and column of C that block `rank` of the cluster computes.
    __host__ __device__ constexpr TilePosition origin(int tile, int rank) const {
        const TilePosition at = position(tile);
        const int wide = (tile < few.tiles() ? few : more).wide, narrow = const_max(at.column - wide, 0);
        return {(at.row * Cluster::rows + Cluster::row(rank)) * BM,
                (at.column - narrow) * BN + narrow * Narrow};
    }

    // Its row and column in tiles.
    __host__ __device__ constexpr TilePosition position(int tile) const {
        if (tile < few.tiles()) return raster_position<Raster>(tile, few.count, few.columns);
        const TilePosition at = raster_position<Raster>(tile - few.tiles(), more.count, more.columns);
        return {few.count + at.row, at.column};
    }
};

// The tiles of a kernel with the parameters BlockTile and Schedule (parameters.cuh), of one width or of two.
template <class BlockTile, class Schedule>
using TileSchedule = conditional_t<
    (BlockTile::narrow > 0),
    EvenTiles<BlockTile::rows, BlockTile::columns, BlockTile::narrow, typename Schedule::Cluster,
              Schedule::raster>,
    TileScheduler<BlockTile::rows, BlockTile::columns, typename Schedule::Cluster, Schedule::raster>>;
