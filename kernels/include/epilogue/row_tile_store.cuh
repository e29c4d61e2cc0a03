// The epilogue of attention through shared memory. Rows of results take the place of the rows of Q that they
// were computed from, which have the same size and layout, and TMA stores them while the warps go on.
#pragma once

#include "epilogue/warpgroup_store.cuh"
#include "mma/attention_tiles.cuh"

// Writes the accumulators of a warpgroup as rows `row` to `row` + 63 of a tile. Each warp arrives at
// `written`.
template <class Element, int Rows, int Columns>
__device__ inline void write_rows(RowTile<Element, Rows, Columns>& to, const float (&value)[1][Columns / 2],
                                  int row, int thread, Mbarrier& written) {
#pragma unroll
    for (int i = 0; i < Columns / 64; ++i) {
        TmaStoreRing<Element, 64, 1>::fill(to.panel[i].byte + row * line_bytes, value[0], 32 * i, thread);
    }
    fence_async_proxy();
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(written);
}

// Stores a tile as rows of a matrix from `row` on, and waits until TMA has read it. TMA leaves out what lies
// beyond the matrix's last row. One thread.
template <class Element, int Rows, int Columns>
__device__ inline void store_rows(const RowTile<Element, Rows, Columns>& from, const MatrixOfMap& to,
                                  int row) {
#pragma unroll
    for (int i = 0; i < Columns / 64; ++i) tma_store(to, row, 64 * i, from.panel[i].byte);
    commit_stores();
    wait_for_store_reads<0>();
}
