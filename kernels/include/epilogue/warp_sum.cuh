// Sliced K (cutlass): the sum of the partial sums that the warps of a block hold of one tile of C. They lie
// in shared memory, a tile of Rows x Columns behind the other, with rows Stride words apart. A vector is
// added up by one thread in the order of the warps, so that the order of the additions is always the same.
#pragma once

#include "types/vector.cuh"

// Rows that lanes of a warp write one below the other start in different banks.
template <int Rows, int Columns>
struct PartialTile {
    static constexpr int stride = Columns + 4, words = Rows * stride;
};

// Calls act(row, column, sums) for each vector of four. Called by Warps warps, behind a barrier.
template <int Rows, int Columns, int Warps, class Act>
__device__ inline void for_each_sum_of_warps(const float* tiles, int thread, Act act) {
    using Tile = PartialTile<Rows, Columns>;
    constexpr int groups = Columns / 4;
#pragma unroll 2
    for (int i = thread; i < Rows * groups; i += 32 * Warps) {
        const int row = i / groups, column = i % groups * 4;
        Vector<float, 4> more[Warps];
#pragma unroll
        for (int warp = 0; warp < Warps; ++warp) {
            more[warp] = load_vector<4>(tiles + warp * Tile::words + row * Tile::stride + column);
        }
#pragma unroll
        for (int warp = 1; warp < Warps; ++warp) {
#pragma unroll
            for (int w = 0; w < 4; ++w) more[0].value[w] += more[warp].value[w];
        }
        act(row, column, more[0]);
    }
}
