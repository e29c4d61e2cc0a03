// Which row of a matrix each row of a tile in shared memory holds, as policies. `row` counts from the first
// row that the tile holds; `step` is the way from row(first) to row(first + rows).
//   EveryRow     one row after the other.
//   ThreeOfFour  the second half of the tile is groups of four rows, a group for each row of threads
//                (quadrants, simt/thread_map.cuh). The first `four` groups hold four rows of the matrix.
//                Later ones hold three, and a copy of the next group's first row, which is never used. So
//                threads with seven rows load the same two LDS.128 as threads with eight.
#pragma once

#include "types/index.cuh"

struct EveryRow {
    __host__ __device__ static constexpr int row(int in_tile) { return in_tile; }
    __host__ __device__ static constexpr int step(int, int rows) { return rows; }
};

// Groups: of a half of the tile.
template <int Groups>
struct ThreeOfFour {
    int four;

    __host__ __device__ constexpr int row(int in_tile) const {
        return in_tile - const_max(0, in_tile / 4 - Groups - four);
    }
    __host__ __device__ constexpr int step(int first, int rows) const {
        return rows == 0 ? 0 : row(first + rows) - row(first);
    }
    // Whether a row of threads has four rows in its second group.
    __host__ __device__ constexpr bool whole(int thread_row) const { return thread_row < four; }
};
