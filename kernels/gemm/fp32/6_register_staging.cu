// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 6 of docs/ladders/fp32.md: register prefetch.
//
// The technique: while a tile is multiplied, the words of the next one are on their way into registers
// (hip-gemm, kernel 5). Threads wait for them only after the FFMAs, when they store them to shared memory.
// In rung 5d they wait at once, and only the other block has something to compute. The price: eight
// registers for words on their way. Rung 6a is this file with room for one block a multiprocessor.
//
// Predicted: 1.20 to 1.25 times as fast as rung 5d.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread. n and k: multiples of four.

#include "simt/outer_product.cuh"
#include "simt/quadrants.cuh"
#include "simt/thread_map.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 2)
fp32_register_staging(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                      int n, int k, float alpha, float beta) {
    using Threads = ThreadMap<LaneMap::zigzag_4x8, BM / TM, BN / TN>;
    constexpr int threads = BM / TM * (BN / TN), pad = 4;
    alignas(16) __shared__ float tile_a[BK][BM + pad], tile_b[BK][BN + pad];
    const int thread = threadIdx.x, row = 4 * Threads::row(thread), column = 4 * Threads::column(thread);
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    // The first vector of each tile that this thread copies; the next ones lie a fixed number of rows on.
    constexpr int rows_a = 4 * threads / BK, rows_b = 4 * threads / BN;
    const int row_a = 4 * thread / BK, column_a = 4 * thread % BK;
    const int row_b = 4 * thread / BN, column_b = 4 * thread % BN;
    const float* from_a = a + (first_row + row_a) * k + column_a;
    const float* from_b = b + Index(row_b) * n + first_column + column_b;
    Vector<float, 4> next_a[BM / rows_a], next_b[BK / rows_b];
    const auto fetch = [&](int first) {  // the thread's vectors of the tiles that begin at `first` of K
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
            const bool inside = first_row + row_a + i < m && first + column_a < k;
            next_a[i / rows_a] = inside ? load_vector<4>(from_a + Index(i) * k) : Vector<float, 4>{};
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) {
            const bool inside = first + row_b + i < k && first_column + column_b < n;
            next_b[i / rows_b] = inside ? load_vector<4>(from_b + Index(i) * n) : Vector<float, 4>{};
        }
        from_a += BK;
        from_b += Index(BK) * n;
    };
    const auto store_to_shared = [&] {
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
#pragma unroll
            for (int w = 0; w < 4; ++w) tile_a[column_a + w][row_a + i] = next_a[i / rows_a].value[w];
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) store_vector(&tile_b[row_b + i][column_b], next_b[i / rows_b]);
    };

    float accumulator[TM][TN] = {};
    fetch(0);
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
        if (first > 0) __syncthreads();  // all threads have read the tiles before
        store_to_shared();
        __syncthreads();    // the tiles are complete
        fetch(first + BK);  // zeros past the end of K

#pragma unroll
        for (int step = 0; step < BK; ++step) {
            Vector<float, 4> of_a[TM / 4], of_b[TN / 4];
            load_quadrants<BM>(of_a, &tile_a[step][row]);
            load_quadrants<BN>(of_b, &tile_b[step][column]);
            add_outer_product(accumulator, of_a, of_b);
        }
    }

    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
