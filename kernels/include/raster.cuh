// The raster: which tile of C a block computes. Blocks start in the order of their number, so the raster decides which
// operands are in the L2 at the same time.
//   Strip == 0  row by row over the whole width: blocks that run together share rows of A and read all of B.
//   Strip >  0  threadblock swizzle (block swizzle in gemm-practice): C is cut into strips of Strip tile columns, and
//               each strip is walked row by row. A wave of blocks covers a rectangle nearer to a square, so it reads
//               fewer distinct rows of A and columns of B.
// Every tile has one number, whatever the numbers of rows and columns; the last strip may be narrower.
#pragma once

#include "index.cuh"

struct TilePosition {
    int row, column;
};

// A position in shared memory, which one lane reads for its warp: the lane that says when it may be overwritten.
__device__ inline TilePosition read_by_lane(int reader, const TilePosition& from, int lane) {
    const TilePosition own = lane == reader ? from : TilePosition{};
    return {__shfl_sync(~0u, own.row, reader), __shfl_sync(~0u, own.column, reader)};
}

template <int Strip>
__host__ __device__ constexpr TilePosition tile_position(int tile, int tile_rows, int tile_columns) {
    if constexpr (Strip == 0) {
        return {tile / tile_columns, tile % tile_columns};
    } else {
        const int per_strip = Strip * tile_rows;
        const int first = tile / per_strip * Strip;
        const int within = tile % per_strip;
        const int width = lesser(Strip, tile_columns - first);
        return {within / width, first + within % width};
    }
}
