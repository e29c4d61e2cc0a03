// Tried, does not pay.
//
// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 7e of docs/ladders/fp32.md: TMA.
//
// The technique: one thread has the whole tile of B copied by TMA (ptx-isa), which also fills in zeros
// beyond the edges. Before, each thread needed four cp.async, with addresses and checks. TMA says by an
// mbarrier when its bytes are there, so the copies of A arrive at that barrier too, in place of cp.async
// groups; __syncthreads still says that all have read a stage. A has to be transposed, which TMA cannot.
// The price: rows of B without padding, which loads of B by quadrants do not need.
//
// Predicted: 1.00 to 1.03 times as fast as rung 7d: what it saves is few of a step's instructions.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread. Stages: pairs of tiles in the
// ring. n: a multiple of four.

#include "copy/transposed_copy.cuh"
#include "ptx/tma.cuh"
#include "schedule/ring.cuh"
#include "simt/outer_product.cuh"
#include "simt/quadrants.cuh"
#include "simt/thread_map.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK>
struct alignas(128) Stage {
    float a[BK][BM + 4];  // transposed; four words more a row, against bank conflicts
    float b[BK][BN];
    Mbarrier full;
    static_assert(sizeof(a) % 128 == 0, "TMA writes B to a multiple of 128 bytes");
};

template <int BM, int BN, int BK, int TM, int TN, int Stages>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 1)
fp32_tma(const float* __restrict__ a, const __grid_constant__ TensorMap map_b, float* __restrict__ c, int m,
         int n, int k, float alpha, float beta) {
    using Threads = ThreadMap<LaneMap::zigzag_4x8, BM / TM, BN / TN>;
    constexpr int threads = BM / TM * (BN / TN);
    extern __shared__ Stage<BM, BN, BK> ring[];
    const int thread = threadIdx.x, row = 4 * Threads::row(thread), column = 4 * Threads::column(thread);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;

    if (thread < Stages) {
        mbarrier_init(ring[thread].full, threads + 1);  // + 1: thread 0's, which announces B's bytes
        fence_mbarrier_init();
    }
    __syncthreads();

    const int row_a = thread / 8, column_a = thread % 8;  // of the first word that copy_transposed copies
    const float* from_a = a + Index(first_row + row_a) * k + column_a;
    const auto start_copies = [&](Stage<BM, BN, BK>& stage, int first) {
        if (thread == 0 && first < k) {
            mbarrier_arrive_expect(stage.full, sizeof(stage.b));
            tma_load(stage.b, map_b, first, first_column, stage.full);
        } else if (thread == 0) {
            mbarrier_arrive(stage.full);  // past the end of K, where nobody multiplies
        }
        const int rows_left = m - first_row - row_a, columns_left = k - first - column_a;
        copy_transposed<threads>(stage.a, from_a, k, rows_left, columns_left, thread);
        mbarrier_arrive_after_copies(stage.full);
        from_a += BK;
    };

    float accumulator[TM][TN] = {};
    Vector<float, 4> of_a[2][TM / 4], of_b[2][TN / 4];
    const auto load = [&](const Stage<BM, BN, BK>& stage, int step) {
        load_quadrants<BM>(of_a[step % 2], &stage.a[step][row]);
        load_quadrants<BN>(of_b[step % 2], &stage.b[step][column]);
    };

    RingPosition<Stages> reading, writing;
    for (int i = 0; i < Stages - 1; ++i, writing.advance()) start_copies(ring[i], i * BK);
    mbarrier_wait(ring[0].full, 0);
    load(ring[0], 0);
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
#pragma unroll
        for (int step = 0; step < BK; ++step) {
            if (step == BK - 1) {  // the next fragments are the next tile's
                reading.advance();
                mbarrier_wait(ring[reading.stage].full, reading.parity);
                __syncthreads();  // all threads have read the tiles before
            }
            load(ring[reading.stage], (step + 1) % BK);
            if (step == 0) {
                start_copies(ring[writing.stage], first + (Stages - 1) * BK);
                writing.advance();
            }
            add_outer_product_in_a_snake(accumulator, of_a[step % 2], of_b[step % 2]);
        }
    }
    wait_for_copies<0>();  // before the thread exits

    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
