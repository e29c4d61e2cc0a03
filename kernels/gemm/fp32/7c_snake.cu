// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 7c of docs/ladders/fp32.md: FFMAs in a snake.
//
// The technique: the FFMAs of an outer product go down a column and up the next (maxas). So each takes a
// word of A or of B from the one before it, out of the operand cache of the scheduler, and two words of
// one bank of registers meet less often. The price: none in the source; the compiler may order them anew.
//
// Predicted: 0.97 to 1.01 times as fast as rung 7b. The compiler knows the banks of registers too.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread. Stages: pairs of tiles in the
// ring. n and k: multiples of four.

#include "ptx/async_copy.cuh"
#include "ptx/shared_memory.cuh"
#include "simt/quadrants.cuh"
#include "simt/thread_map.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK>
struct alignas(16) Stage {
    float a[BK][BM + 4], b[BK][BN + 4];  // A transposed; rows four words longer, against bank conflicts
};

template <int BM, int BN, int BK, int TM, int TN, int Stages>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 1)
fp32_snake(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
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
#pragma unroll
            for (int i = 0; i < TM * TN; ++i) {  // down a column, up the next: each reuses a word of A or B
                const int x = i / TM, y = x % 2 == 0 ? i % TM : TM - 1 - i % TM;
                accumulator[y][x] += of_a[step % 2][y / 4].value[y % 4] * of_b[step % 2][x / 4].value[x % 4];
            }
        }
    }
    wait_for_copies<0>();  // before the thread exits

    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
