// The raster: which tile of C a block computes. Blocks start in the order of their number, so the raster
// decides which operands are in the L2 at the same time.
//   Strip == 0  row by row over the whole width: blocks that run together share rows of A and read all of B.
//   Strip >  0  threadblock swizzle (block swizzle in gemm-practice): C is cut into strips of Strip tile
//               columns, and each strip is walked row by row. A wave of blocks covers a rectangle nearer to a
//               square, so it reads fewer distinct rows of A and columns of B.
//   hilbert     a Hilbert curve over the tiles.
// Every tile has one number, whatever the numbers of rows and columns; the last strip may be narrower.
#pragma once

#include "types/index.cuh"

struct TilePosition {
    int row, column;
};

// A position in shared memory, which one lane reads for its warp: the lane that says when it may be
// overwritten.
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
        const int width = const_min(Strip, tile_columns - first);
        return {within / width, first + within % width};
    }
}

// A Hilbert curve over any rectangle, after gilbert: tile d of the curve lies beside tile d - 1 (a few times
// diagonally). A stretch of the curve fills a compact patch, so that blocks that run together share rows of A
// and columns of B. The rectangle is cut into a first leg, the way across and the way back. Each is a smaller
// rectangle with its own axes, and is cut in the same way until one is a line. A rectangle much longer than
// wide is halved along its length. Halves are kept even, so that the ends meet.

// A rectangle as its corner and two axes: `length` steps along (along_row, along_column), and `width` steps
// sideways.
struct CurveRectangle {
    int row, column;
    int along_row, along_column, length;
    int side_row, side_column, width;

    __host__ __device__ constexpr CurveRectangle part(int along, int side, int new_length,
                                                      int new_width) const {
        return {row + along * along_row + side * side_row, column + along * along_column + side * side_column,
                along_row, along_column, new_length, side_row, side_column, new_width};
    }
    __host__ __device__ constexpr CurveRectangle turned() const {
        return {row, column, side_row, side_column, width, along_row, along_column, length};
    }
    __host__ __device__ constexpr CurveRectangle reversed() const {
        return {row, column, -along_row, -along_column, length, -side_row, -side_column, width};
    }
};

__host__ __device__ constexpr int even_half(int extent) {
    const int half = extent / 2;
    return half % 2 != 0 && extent > 2 ? half + 1 : half;
}

__host__ __device__ constexpr TilePosition hilbert_position(int tile, int rows, int columns) {
    CurveRectangle rectangle = columns >= rows ? CurveRectangle{0, 0, 0, 1, columns, 1, 0, rows}
                                       : CurveRectangle{0, 0, 1, 0, rows, 0, 1, columns};
    while (rectangle.length > 1 && rectangle.width > 1) {
        const int length = rectangle.length, width = rectangle.width;
        if (2 * length > 3 * width) {
            const int half = even_half(length);
            if (tile < half * width) {
                rectangle = rectangle.part(0, 0, half, width);
            } else {
                tile -= half * width;
                rectangle = rectangle.part(half, 0, length - half, width);
            }
            continue;
        }
        const int half_length = length / 2, half_width = even_half(width);
        const int out = half_length * half_width, across = length * (width - half_width);
        if (tile < out) {
            rectangle = rectangle.part(0, 0, half_length, half_width).turned();
        } else if (tile < out + across) {
            tile -= out;
            rectangle = rectangle.part(0, half_width, length, width - half_width);
        } else {
            tile -= out + across;
            CurveRectangle back =
                rectangle.part(length - 1, half_width - 1, length - half_length, half_width).turned();
            rectangle = back.reversed();
        }
    }
    return rectangle.length > 1 ? TilePosition{rectangle.row + tile * rectangle.along_row,
                                               rectangle.column + tile * rectangle.along_column}
                                : TilePosition{rectangle.row + tile * rectangle.side_row,
                                               rectangle.column + tile * rectangle.side_column};
}
