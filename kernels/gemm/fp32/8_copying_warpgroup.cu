// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 8 of docs/ladders/fp32.md: warps that only copy.
//
// The technique: warp specialisation (cutlass). One warpgroup, the producer, copies; two others, the
// consumers, only load fragments and multiply. They spend no instructions on copies, and the scheduler
// issues their FFMAs while the producer waits. A second mbarrier a stage, `empty`, replaces __syncthreads:
// all consumers have read it. The price: the producer's threads hold registers. A block has 168 for each
// thread; setmaxnreg moves them from producers (40) to consumers (232).
//
// Predicted: 1.00 to 1.05 times as fast as rung 7e.
//
// BM, BN, BK: tile of the block. TM, TN: outputs of a thread. Stages: of the ring. n: a multiple of four.

#include "copy/transposed_copy.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
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
    Mbarrier full, empty;
    static_assert(sizeof(a) % 128 == 0, "TMA writes B to a multiple of 128 bytes");
};

template <int BM, int BN, int BK, int Stages>
__device__ inline void copy_tiles(unsigned char* memory, const float* a, const TensorMap& map_b, int m, int k,
                                  int first_row, int first_column, int thread) {  // the producer, along K
    const int row = thread / 8, column = thread % 8, rows_left = m - first_row - row;
    int columns_left = k - column;
    const float* from = a + Index(first_row + row) * k + column;
    RingOffset<Stage<BM, BN, BK>, Stages> at;
    for (int first = 0; first < k; first += BK, at.advance()) {
        auto& stage = at.in(memory);
        mbarrier_wait(stage.empty, at.parity ^ 1);  // returns at once on the first pass through the ring
        if (thread == 0) {
            mbarrier_arrive_expect(stage.full, sizeof(stage.b));
            tma_load(stage.b, map_b, first, first_column, stage.full);
        }
        copy_transposed<warpgroup_threads>(stage.a, from, k, rows_left, columns_left, thread);
        from += BK;
        columns_left -= BK;
        mbarrier_arrive_after_copies(stage.full);
    }
    // Consumers read one stage more at the end: its `full` has to end a phase, or they would wait for ever.
    auto& stage = at.in(memory);
    mbarrier_wait(stage.empty, at.parity ^ 1);
    if (thread == 0) mbarrier_arrive(stage.full);
    mbarrier_arrive_after_copies(stage.full);
    wait_for_copies<0>();  // before the thread exits
}

template <int BM, int BN, int BK, int TM, int TN, int Stages>
__global__ void __launch_bounds__(BM / TM * (BN / TN) + warpgroup_threads, 1)
fp32_copying_warpgroup(const float* __restrict__ a, const __grid_constant__ TensorMap map_b,
                       float* __restrict__ c, int m, int n, int k, float alpha, float beta) {
    using Threads = ThreadMap<LaneMap::zigzag_4x8, BM / TM, BN / TN>;
    constexpr int consumers = BM / TM * (BN / TN);  // threads
    static_assert(consumers == 2 * warpgroup_threads && BK % 2 == 0, "two warpgroups, two buffers");
    alignas(128) extern __shared__ unsigned char memory[];
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    if (threadIdx.x < Stages) {
        auto& stage = reinterpret_cast<Stage<BM, BN, BK>*>(memory)[threadIdx.x];
        mbarrier_init(stage.full, warpgroup_threads + 1);  // + 1: thread 0's, which announces B's bytes
        mbarrier_init(stage.empty, consumers);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (warpgroup == 2) {
        shrink_registers<producer_registers<2>>();
        const int thread = threadIdx.x - consumers;
        return copy_tiles<BM, BN, BK, Stages>(memory, a, map_b, m, k, first_row, first_column, thread);
    }
    grow_registers<consumer_registers<2>>();
    const int thread = threadIdx.x, row = 4 * Threads::row(thread), column = 4 * Threads::column(thread);
    float accumulator[TM][TN] = {};
    Vector<float, 4> of_a[2][TM / 4], of_b[2][TN / 4];
    RingOffset<Stage<BM, BN, BK>, Stages> at;
    const auto load = [&](const Stage<BM, BN, BK>& stage, int step) {
        load_quadrants<BN>(of_b[step % 2], &stage.b[step][column]);
        load_quadrants<BM>(of_a[step % 2], &stage.a[step][row]);
    };
    mbarrier_wait(at.in(memory).full, at.parity);
    load(at.in(memory), 0);
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
        Mbarrier& read = at.in(memory).empty;  // of the stage that is multiplied
#pragma unroll
        for (int step = 0; step < BK; ++step) {
            if (step == BK - 1) {  // the next fragments are the next stage's
                at.advance();
                mbarrier_wait(at.in(memory).full, at.parity);
            }
            load(at.in(memory), (step + 1) % BK);
            add_outer_product_in_a_snake(accumulator, of_a[step % 2], of_b[step % 2]);
        }
        mbarrier_arrive(read);
    }
    store_quadrants<BM, BN>(accumulator, c, m, n, first_row + row, first_column + column, alpha, beta);
}
