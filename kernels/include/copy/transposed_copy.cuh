// A tile of A on its way into shared memory by cp.async, transposed: each word is copied by itself, to its
// own place. A warp copies 8 columns c of 4 rows r. Rows of the tile have four words more than there are
// rows of A, so the words go to banks (c * (BM + 4) + r) % 32 = 4 * c + r, each to another one.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/shared_memory.cuh"
#include "types/index.cuh"

// The words of thread number `thread` of Threads. `from`: its first one, in row thread / 8 and column
// thread % 8 of the tile. Zeros stand for what is not among the rows and columns that A has left from
// there on.
template <int Threads, int BK, int Pitch>
__device__ inline void copy_transposed(float (&to)[BK][Pitch], const float* from, int k, int rows_left,
                                       int columns_left, int thread) {
    constexpr int rows = Threads / 8;
    const int row = thread / 8, column = thread % 8;
#pragma unroll
    for (int x = 0; x < BK; x += 8) {
#pragma unroll
        for (int y = 0; y < Pitch - 4; y += rows) {
            const bool inside = y < rows_left && x < columns_left;
            copy_async<4>(shared_address(&to[column + x][row + y]), from + Index(y) * k + x, inside);
        }
    }
}
