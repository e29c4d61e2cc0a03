// A rectangle of Rows x Columns words of a row-major fp32 matrix into shared memory, by one warp and without
// registers in between (cp.async). Neighbouring lanes copy neighbouring vectors of 16 bytes where the
// matrix's rows are whole vectors, else neighbouring words. Outside the matrix the rectangle is filled with
// zeros, which add nothing to the sums.
#pragma once

#include "ptx/async_copy.cuh"
#include "types/index.cuh"

// Layout: where the rectangle's 16-byte chunks lie (chunk_layout.cuh). Width: words of an access.
template <class Layout, int Rows, int Columns, int Width>
__device__ inline void copy_by_lanes(unsigned to, const float* from, int pitch, int rows_left,
                                     int columns_left, int lane) {
    constexpr int per_row = Columns / Width;  // vectors
    constexpr int turns = ceil_div(Rows * per_row, 32);
    static_assert((per_row & (per_row - 1)) == 0, "all turns of a lane have its part of the row");
    const int row = lane / per_row, column = lane % per_row * Width;
    const unsigned lane_to = Layout::offset(row, column / 4) + column % 4 * 4;
    from += Index(row) * pitch + column;
    rows_left -= row;
    columns_left -= column;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
        const int row_step = turn * 32 / per_row, column_step = turn * 32 % per_row * Width;
        if ((Rows * per_row) % 32 != 0 && row + row_step >= Rows) continue;
        copy_async<4 * Width>(to + Layout::below(Layout::across(lane_to, column_step / 4), row_step),
                              from + Index(row_step) * pitch + column_step,
                              row_step < rows_left && column_step < columns_left);
    }
}

// `from`: the rectangle's first word in a matrix with rows of `pitch` words, from which `rows_left` rows and
// `columns_left` columns are inside. The first column is a multiple of 4.
template <class Layout, int Rows, int Columns>
__device__ inline void copy_by_warp(unsigned to, const float* from, int pitch, int rows_left,
                                    int columns_left, int lane) {
    if (pitch % 4 == 0) {
        copy_by_lanes<Layout, Rows, Columns, 4>(to, from, pitch, rows_left, columns_left, lane);
    } else {
        copy_by_lanes<Layout, Rows, Columns, 1>(to, from, pitch, rows_left, columns_left, lane);
    }
}
