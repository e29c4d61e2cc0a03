// A Hilbert curve over any rectangle, after gilbert: tile d of the curve lies beside tile d - 1 (a few times
// diagonally). A stretch of the curve fills a compact patch, so that blocks that run together share rows of A and
// columns of B. The rectangle is cut into a first leg, the way across and the way back. Each is a smaller rectangle
// with its own axes, and is cut in the same way until one is a line. A rectangle much longer than wide is halved along
// its length. Halves are kept even, so that the ends meet.
#pragma once

#include "index.cuh"
#include "raster.cuh"

// A rectangle as its corner and two axes: `length` steps along (along_row, along_column), and `width` steps sideways.
struct CurvePiece {
    int row, column;
    int along_row, along_column, length;
    int side_row, side_column, width;

    __host__ __device__ constexpr CurvePiece part(int along, int side, int new_length, int new_width) const {
        return {row + along * along_row + side * side_row, column + along * along_column + side * side_column,
                along_row, along_column, new_length, side_row, side_column, new_width};
    }
    __host__ __device__ constexpr CurvePiece turned() const {
        return {row, column, side_row, side_column, width, along_row, along_column, length};
    }
    __host__ __device__ constexpr CurvePiece reversed() const {
        return {row, column, -along_row, -along_column, length, -side_row, -side_column, width};
    }
};

__host__ __device__ constexpr int even_half(int extent) {
    const int half = extent / 2;
    return half % 2 != 0 && extent > 2 ? half + 1 : half;
}

__host__ __device__ constexpr TilePosition hilbert_position(int tile, int rows, int columns) {
    CurvePiece piece = columns >= rows ? CurvePiece{0, 0, 0, 1, columns, 1, 0, rows}
                                       : CurvePiece{0, 0, 1, 0, rows, 0, 1, columns};
    while (piece.length > 1 && piece.width > 1) {
        const int length = piece.length, width = piece.width;
        if (2 * length > 3 * width) {
            const int half = even_half(length);
            if (tile < half * width) {
                piece = piece.part(0, 0, half, width);
            } else {
                tile -= half * width;
                piece = piece.part(half, 0, length - half, width);
            }
            continue;
        }
        const int half_length = length / 2, half_width = even_half(width);
        const int out = half_length * half_width, across = length * (width - half_width);
        if (tile < out) {
            piece = piece.part(0, 0, half_length, half_width).turned();
        } else if (tile < out + across) {
            tile -= out;
            piece = piece.part(0, half_width, length, width - half_width);
        } else {
            tile -= out + across;
            CurvePiece back = piece.part(length - 1, half_width - 1, length - half_length, half_width).turned();
            piece = back.reversed();
        }
    }
    return piece.length > 1 ? TilePosition{piece.row + tile * piece.along_row, piece.column + tile * piece.along_column}
                            : TilePosition{piece.row + tile * piece.side_row, piece.column + tile * piece.side_column};
}
