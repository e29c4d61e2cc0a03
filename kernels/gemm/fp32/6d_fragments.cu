// Tried, does not pay.
//
// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 6d of docs/ladders/fp32.md: double-buffered fragments.
//
// The technique: a second set of fragments in registers (hip-gemm, kernel 7.5). The operands of the next
// step load while this step is multiplied, across tiles too: the stores and the barrier of a tile come
// ahead of its last step. The price: 16 registers, so edges of the matrices are counted in 32 bits here,
// to fit two blocks on a multiprocessor.
//
// Predicted: 1.00 to 1.04 times as fast as rung 6c, the same without it. The other warps of a scheduler
// hide most of a shared load already.
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
fp32_fragments(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
               int k, float alpha, float beta) {
    using Threads = ThreadMap<LaneMap::zigzag_4x8, BM / TM, BN / TN>;
    constexpr int threads = BM / TM * (BN / TN);
    __shared__ Stage<BM, BN, BK> stages[2];
    const int thread = threadIdx.x, row = 4 * Threads::row(thread), column = 4 * Threads::column(thread);
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    // The first vector of each tile that this thread copies; the next ones lie a fixed number of rows on.
    constexpr int rows_a = 4 * threads / BK, rows_b = 4 * threads / BN;
    const int row_a = 4 * thread / BK, column_a = 4 * thread % BK;
    const int row_b = 4 * thread / BN, column_b = 4 * thread % BN;
    const int rows_left = m - int(first_row) - row_a, columns_left = n - int(first_column) - column_b;
    const float* from_a = a + (first_row + row_a) * k + column_a;
    const float* from_b = b + Index(row_b) * n + first_column + column_b;
    Vector<float, 4> next_a[BM / rows_a], next_b[BK / rows_b];
    const auto fetch = [&](int first) {  // the thread's vectors of the tiles that begin at `first` of K
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
            const bool inside = i < rows_left && first + column_a < k;
            next_a[i / rows_a] = inside ? load_vector<4>(from_a + Index(i) * k) : Vector<float, 4>{};
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) {
            const bool inside = first + row_b + i < k && columns_left > 0;
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
    Vector<float, 4> of_a[2][TM / 4], of_b[2][TN / 4];
    int reading = 0;
    const auto load = [&](int step) {
        load_quadrants<BM>(of_a[step % 2], &stages[reading].a[step][row]);
        load_quadrants<BN>(of_b[step % 2], &stages[reading].b[step][column]);
    };
    fetch(0);
    store_to_shared(stages[0]);
    __syncthreads();  // the first tiles are complete
    load(0);
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
        fetch(first + BK);  // zeros past the end of K

#pragma unroll
        for (int step = 0; step < BK; ++step) {
            if (step == BK - 1) {  // the next fragments are the next tiles'
                reading ^= 1;
                store_to_shared(stages[reading]);
                __syncthreads();  // these tiles are complete, and all threads have read the others
            }
            load((step + 1) % BK);
            add_outer_product(accumulator, of_a[step % 2], of_b[step % 2]);
        }
    }

    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
