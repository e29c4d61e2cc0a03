// A Rows x Columns tile of a row-major matrix of 16-bit elements, from global memory into shared memory in accesses of
// sixteen bytes. Outside the matrix the tile is filled with zeros. The matrix needs a number of columns that is a multiple
// of 8, so that eight elements are inside or outside as a whole and start on sixteen bytes.
#pragma once

#include "index.cuh"

template <int Rows, int Columns, int Pitch, int Threads, class Element>
__device__ inline void copy_tile(Element* tile, const Element* matrix, int rows, int columns,
                                 Index first_row, int first_column, int thread) {
    constexpr int vectors_per_row = Columns / 8;
    static_assert(Columns % 8 == 0 && Pitch % 8 == 0, "whole vectors in a row");
    constexpr int per_thread = Rows * vectors_per_row / Threads;
    static_assert(Rows * vectors_per_row % Threads == 0, "the same number of vectors for every thread");
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
        const int vector = thread + i * Threads;
        const int row = vector / vectors_per_row;
        const int column = vector % vectors_per_row * 8;
        const bool inside = first_row + row < rows && first_column + column < columns;
        const Element* from = matrix + (first_row + row) * columns + first_column + column;
        uint4 eight = make_uint4(0, 0, 0, 0);  // as words: eight 16-bit zeros would be put together one by one
        if (inside) eight = *reinterpret_cast<const uint4*>(from);
        *reinterpret_cast<uint4*>(tile + row * Pitch + column) = eight;
    }
}
