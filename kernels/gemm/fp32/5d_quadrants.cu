// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 5d of docs/ladders/fp32.md: quadrants.
//
// The technique: a thread's outputs are four groups of 4 x 4, one in each quarter of the tile (maxas;
// simt/quadrants.cuh). So neighbouring threads read neighbouring 16 bytes. In rung 5c these lie 32 bytes
// apart and use half of the banks. The price: none, a store of C still writes 16 bytes a thread.
//
// Predicted: 1.00 to 1.04 times as fast as rung 5c, which waits little for shared memory.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread. n and k: multiples of four.

#include "simt/outer_product.cuh"
#include "simt/quadrants.cuh"
#include "simt/thread_map.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 2)
fp32_quadrants(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
               int k, float alpha, float beta) {
    using Threads = ThreadMap<LaneMap::zigzag_4x8, BM / TM, BN / TN>;
    constexpr int threads = BM / TM * (BN / TN), pad = 4;
    alignas(16) __shared__ float tile_a[BK][BM + pad], tile_b[BK][BN + pad];  // A transposed
    const int thread = threadIdx.x;
    const int row = 4 * Threads::row(thread), column = 4 * Threads::column(thread);  // of its outputs
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    // The first vector of each tile that this thread copies; the next ones lie a fixed number of rows on.
    constexpr int rows_a = 4 * threads / BK, rows_b = 4 * threads / BN;
    const int row_a = 4 * thread / BK, column_a = 4 * thread % BK;
    const int row_b = 4 * thread / BN, column_b = 4 * thread % BN;
    const float* from_a = a + (first_row + row_a) * k + column_a;
    const float* from_b = b + Index(row_b) * n + first_column + column_b;

    float accumulator[TM][TN] = {};
    for (int first = 0; first < k; first += BK, from_a += BK, from_b += Index(BK) * n) {
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
            Vector<float, 4> words{};
            if (first_row + row_a + i < m && first + column_a < k) {
                words = load_vector<4>(from_a + Index(i) * k);
            }
#pragma unroll
            for (int w = 0; w < 4; ++w) tile_a[column_a + w][row_a + i] = words.value[w];
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) {
            Vector<float, 4> words{};
            if (first + row_b + i < k && first_column + column_b < n) {
                words = load_vector<4>(from_b + Index(i) * n);
            }
            store_vector(&tile_b[row_b + i][column_b], words);
        }
        __syncthreads();  // the tiles are complete

#pragma unroll
        for (int step = 0; step < BK; ++step) {
            Vector<float, 4> of_a[TM / 4], of_b[TN / 4];
            load_quadrants<BM>(of_a, &tile_a[step][row]);
            load_quadrants<BN>(of_b, &tile_b[step][column]);
            add_outer_product(accumulator, of_a, of_b);
        }
        __syncthreads();  // all threads have read them
    }

    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
