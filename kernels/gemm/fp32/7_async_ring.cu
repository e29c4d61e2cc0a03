// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 7 of docs/ladders/fp32.md: a ring of tiles, filled by cp.async.
//
// The technique: copies go from global to shared memory without registers in between (gemm-practice,
// `dbuf`; matmul-worklog, kernel 12), into a ring of Stages pairs of tiles: one is read, the others are on
// their way. The barrier of rung 6d stays: the next tile is complete, and all threads have read this one.
// The price: A is transposed on the way, so its copies are of 4 bytes, four times as many instructions as
// for B.
//
// With two stages (rung 7) a copy has one tile's time, with three (rung 7a) two. Rung 6d hides global
// latency already: the ring is what rungs 7d to 8 build on.
//
// Predicted: rung 7 1.00 to 1.03 times as fast as 6d, rung 7a 1.00 to 1.03 times as fast as 7.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread. Stages: pairs of tiles in the
// ring. n and k: multiples of four.

#include "ptx/async_copy.cuh"
#include "ptx/shared_memory.cuh"
#include "simt/outer_product.cuh"
#include "simt/quadrants.cuh"
#include "simt/thread_map.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK>
struct alignas(16) Stage {
    float a[BK][BM + 4], b[BK][BN + 4];  // A transposed; rows four words longer, against bank conflicts
};

template <int BM, int BN, int BK, int TM, int TN, int Stages>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 2)
fp32_async_ring(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
                int k, float alpha, float beta) {
    using Threads = ThreadMap<LaneMap::zigzag_4x8, BM / TM, BN / TN>;
    constexpr int threads = BM / TM * (BN / TN);
    __shared__ Stage<BM, BN, BK> ring[Stages];
    const int thread = threadIdx.x, row = 4 * Threads::row(thread), column = 4 * Threads::column(thread);
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    // The first four words of each tile that this thread copies; the next ones lie a fixed number of rows on.
    constexpr int rows_a = 4 * threads / BK, rows_b = 4 * threads / BN;
    const int row_a = 4 * thread / BK, column_a = 4 * thread % BK;
    const int row_b = 4 * thread / BN, column_b = 4 * thread % BN;
    const float* from_a = a + (first_row + row_a) * k + column_a;
    const float* from_b = b + Index(row_b) * n + first_column + column_b;
    const auto start_copies = [&](Stage<BM, BN, BK>& stage, int first) {  // a tile's, as one cp.async group
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
            const bool inside = first_row + row_a + i < m && first + column_a < k;
#pragma unroll
            for (int w = 0; w < 4; ++w) {  // word by word, each to its transposed place
                const unsigned to = shared_address(&stage.a[column_a + w][row_a + i]);
                copy_async<4>(to, from_a + Index(i) * k + w, inside);
            }
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) {
            const bool inside = first + row_b + i < k && first_column + column_b < n;
            copy_async<16>(shared_address(&stage.b[row_b + i][column_b]), from_b + Index(i) * n, inside);
        }
        commit_copies();
        from_a += BK;
        from_b += Index(BK) * n;
    };
    const auto wait_for_next_tile = [] {
        wait_for_copies<Stages - 2>();
        __syncthreads();  // the next tile is complete, and all threads have read this one
    };

    float accumulator[TM][TN] = {};
    Vector<float, 4> of_a[2][TM / 4], of_b[2][TN / 4];
    const auto load = [&](const Stage<BM, BN, BK>& stage, int step) {
        load_quadrants<BM>(of_a[step % 2], &stage.a[step][row]);
        load_quadrants<BN>(of_b[step % 2], &stage.b[step][column]);
    };

#pragma unroll
    for (int i = 0; i < Stages - 1; ++i) start_copies(ring[i], i * BK);
    wait_for_next_tile();
    load(ring[0], 0);
    int reading = 0, writing = Stages - 1;
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
#pragma unroll
        for (int step = 0; step < BK; ++step) {
            if (step == BK - 1) {  // the next fragments are the next tile's
                wait_for_next_tile();
                reading = reading + 1 < Stages ? reading + 1 : 0;
            }
            load(ring[reading], (step + 1) % BK);
            if (step == 0) {
                start_copies(ring[writing], first + (Stages - 1) * BK);  // zeros past the end of K
                writing = writing + 1 < Stages ? writing + 1 : 0;
            }
            add_outer_product(accumulator, of_a[step % 2], of_b[step % 2]);
        }
    }
    wait_for_copies<0>();  // before the thread exits

    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
