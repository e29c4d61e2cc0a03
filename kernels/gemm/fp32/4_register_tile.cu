// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 4 of docs/ladders/fp32.md: a tile of outputs in registers.
//
// The technique: a thread computes TM x TN outputs as a sum of outer products (hip-gemm, kernel 3.1). For
// each step of K it reads TM words of A and TN words of B from shared memory into registers, and
// multiplies each word of A with each of B: 16 words for 64 FFMAs, where rung 3 reads two words for one.
// The block tile grows from 32 x 32 to 128 x 128, so a word from global memory serves 128 outputs, not 32.
// A row of A's tile runs along K, so one LDS.128 reads A for four steps. The price: the compiler keeps
// those words, 164 registers a thread, so one block fits on a multiprocessor.
//
// BM, BN, BK: tile of the block, in elements, by default 128 x 128 x 8. TM, TN: outputs of a thread, 8 x
// 8, so that a block has 256 threads.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM / TM * (BN / TN))
fp32_register_tile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                   int n, int k, float alpha, float beta) {
    constexpr int threads = BM / TM * (BN / TN);
    __shared__ float tile_a[BM][BK], tile_b[BK][BN];
    const int thread = threadIdx.x;
    const int row = thread / (BN / TN) * TM, column = thread % (BN / TN) * TN;  // of its outputs
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    // The first word of each tile that this thread copies; the next ones lie a fixed number of rows on.
    constexpr int rows_a = threads / BK, rows_b = threads / BN;
    const int row_a = thread / BK, column_a = thread % BK, row_b = thread / BN, column_b = thread % BN;
    const float* from_a = a + (first_row + row_a) * k + column_a;
    const float* from_b = b + Index(row_b) * n + first_column + column_b;

    float accumulator[TM][TN] = {};
    for (int first = 0; first < k; first += BK, from_a += BK, from_b += Index(BK) * n) {
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
            const bool inside = first_row + row_a + i < m && first + column_a < k;
            tile_a[row_a + i][column_a] = inside ? from_a[Index(i) * k] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) {
            const bool inside = first + row_b + i < k && first_column + column_b < n;
            tile_b[row_b + i][column_b] = inside ? from_b[Index(i) * n] : 0.0f;
        }
        __syncthreads();  // the tiles are complete

#pragma unroll
        for (int step = 0; step < BK; ++step) {
            float of_a[TM], of_b[TN];
#pragma unroll
            for (int y = 0; y < TM; ++y) of_a[y] = tile_a[row + y][step];
#pragma unroll
            for (int x = 0; x < TN; ++x) of_b[x] = tile_b[step][column + x];
#pragma unroll
            for (int i = 0; i < TM * TN; ++i) accumulator[i / TN][i % TN] += of_a[i / TN] * of_b[i % TN];
        }
        __syncthreads();  // all threads have read them
    }

#pragma unroll
    for (int i = 0; i < TM * TN; ++i) {
        const Index to_row = first_row + row + i / TN, to_column = first_column + column + i % TN;
        if (to_row >= m || to_column >= n) continue;
        float* out = c + to_row * n + to_column;
        *out = combine_fp32(accumulator[i / TN][i % TN], out, alpha, beta);
    }
}
