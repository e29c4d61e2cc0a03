// Outputs of a thread in quadrants (maxas): along an edge of the tile, Extent long, its Count values are
// groups of four. The first groups of all threads lie side by side, then the second groups. So neighbouring
// threads read neighbouring sixteen bytes of a row in shared memory, from all banks.
#pragma once

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// Where value i of a thread lies, from its first one on.
template <int Extent, int Count>
__host__ __device__ constexpr int quadrant_step(int i) { return i / 4 * (4 * Extent / Count) + i % 4; }

// A thread's values of a row of a tile, from its first one on.
template <int Extent, int Groups>
__device__ inline void load_quadrants(Vector<float, 4> (&fragment)[Groups], const float* first) {
#pragma unroll
    for (int i = 0; i < Groups; ++i) {
        fragment[i] = load_vector<4>(first + quadrant_step<Extent, 4 * Groups>(4 * i));
    }
}

// C = alpha * accumulator + beta * C for a thread whose first output lies at (row, column) of C.
template <int BM, int BN, int TM, int TN>
__device__ inline void store_quadrants(const float (&accumulator)[TM][TN], float* c, int m, int n, Index row,
                                       Index column, float alpha, float beta) {
#pragma unroll
    for (int i = 0; i < TM * TN; i += 4) {
        const int y = i / TN, x = i % TN;
        const Index to_row = row + quadrant_step<BM, TM>(y), to_column = column + quadrant_step<BN, TN>(x);
        if (to_row >= m || to_column >= n) continue;
        store_combined_fp32<4>(c + to_row * n + to_column, &accumulator[y][x], alpha, beta);
    }
}
