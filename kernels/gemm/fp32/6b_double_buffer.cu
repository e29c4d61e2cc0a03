// Tried, does not pay with two blocks a multiprocessor.
//
// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 6b of docs/ladders/fp32.md: double-buffered tiles.
//
// The technique: two pairs of tiles in shared memory (double-buffering; hip-gemm, kernel 6). One is read,
// the next is stored to the other. So a tile has one barrier, not two, and no warp waits between the last
// FFMA of a tile and the first store of the next. The price: shared memory twice, and registers, 149 a
// thread.
//
// It pays where one block has the multiprocessor to itself (rung 6b over 6a): nobody else computes while
// its warps wait at barriers. With two blocks (MinBlocks = 2, rung 6c over 6) the other block does, and it
// loses.
//
// Predicted: rung 6b 1.15 to 1.30 times as fast as 6a, rung 6c 0.92 to 0.97 times as fast as 6.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread. MinBlocks: blocks that a
// multiprocessor has registers for. n and k: multiples of four.

#include "simt/outer_product.cuh"
#include "simt/quadrants.cuh"
#include "simt/thread_map.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK>
struct alignas(16) Stage {
    float a[BK][BM + 4], b[BK][BN + 4];  // A transposed; rows four words longer, against bank conflicts
};

template <int BM, int BN, int BK, int TM, int TN, int MinBlocks>
__global__ void __launch_bounds__(BM / TM * (BN / TN), MinBlocks)
fp32_double_buffer(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                   int n, int k, float alpha, float beta) {
    using Threads = ThreadMap<LaneMap::zigzag_4x8, BM / TM, BN / TN>;
    constexpr int threads = BM / TM * (BN / TN);
    __shared__ Stage<BM, BN, BK> stages[2];
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
    const auto store_to_shared = [&](Stage<BM, BN, BK>& to) {
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
#pragma unroll
            for (int w = 0; w < 4; ++w) to.a[column_a + w][row_a + i] = next_a[i / rows_a].value[w];
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) store_vector(&to.b[row_b + i][column_b], next_b[i / rows_b]);
    };

    float accumulator[TM][TN] = {};
    fetch(0);
    store_to_shared(stages[0]);
    __syncthreads();  // the first tiles are complete
    int reading = 0;
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
        fetch(first + BK);  // zeros past the end of K

#pragma unroll
        for (int step = 0; step < BK; ++step) {
            Vector<float, 4> of_a[TM / 4], of_b[TN / 4];
            load_quadrants<BM>(of_a, &stages[reading].a[step][row]);
            load_quadrants<BN>(of_b, &stages[reading].b[step][column]);
            add_outer_product(accumulator, of_a, of_b);
        }
        reading ^= 1;
        store_to_shared(stages[reading]);
        __syncthreads();  // these tiles are complete, and all threads have read the others
    }

    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
