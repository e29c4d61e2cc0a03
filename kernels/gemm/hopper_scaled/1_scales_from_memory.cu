// C = A @ B with scales by block, E4m3 operands, B stored as N x K: one tile of C per block.
// Rung 1: scales read from global memory.
//
// The technique: scales at the promotion (deepseek-v3). wgmma sums the products of 128 of K in partial sums
// that begin at zero, as in hopper_fp8_promoted. A partial sum of 128 of K has one scale of A, its row's, and
// one of B, that of 128 columns, so that an fma with their product adds it to its accumulator, where without
// scales an addition did. A thread's partial sums lie in two rows, and the tile is as wide as a block of B,
// so that it needs three numbers a step. Here each thread reads them from global memory when its wgmma have
// started. To expect: a step takes the tensor cores 512 cycles, and a read that misses the L1 longer, so that
// they wait for the scales in every step.
// The tiles come through a ring, loaded by one warpgroup for two that multiply (rung 3 of the Hopper ladder).
//
// Value: of C, __nv_bfloat16 or float. Stages: tiles of A and B in the ring. scale_a has a row of M for each
// block of K, scale_b one of blocks of K for each block of N, both padded to multiples of four numbers.

#include "epilogue/warpgroup_store.cuh"
#include "mma/block_scales.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "types/index.cuh"

using Alone = ClusterShape<1, 1>;
constexpr int consumers = 2;
constexpr int rows = consumers * 64, columns = scale_block;  // of the block tile

template <int Stages>
struct Shared {
    OperandTile<E4m3, Major::k, rows> a[Stages];
    OperandTile<E4m3, Major::k, columns> b[Stages];
    RingBarriers<Stages> ring;
};

template <class Value, int Stages>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
scales_from_memory(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                   const float* scale_a, const float* scale_b, Value* c, int m, int n, int k) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Stages>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);  // a step is a block of K
    const int first_row = blockIdx.y * rows, first_column = blockIdx.x * columns;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        prefetch(map_a);
        prefetch(map_b);
        ring.init(consumers * 4);  // a release per warp of the consumers
    }
    __syncthreads();

    RingPosition<Stages> at;
    if (warpgroup == 0) {  // the producer
        if (one_of_warpgroup(thread)) {
            for (int step = 0; step < steps; ++step, at.advance()) {
                auto& a = shared.a[at.stage];
                auto& b = shared.b[at.stage];
                ring.wait_until_empty(at);
                mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                a.load(map_a, first_row, step * depth, ring.full[at.stage]);
                b.load(map_b, first_column, step * depth, ring.full[at.stage]);
            }
        }
    } else {  // a consumer
        const int tile_row = (warpgroup - 1) * 64;
        float accumulator[1][columns / 2], partial[1][columns / 2];
        clear(accumulator);
        const int row = first_row + tile_row + accumulator_row(thread, 0);
        const int padded_m = ceil_div(m, 4) * 4, padded_steps = ceil_div(steps, 4) * 4;
        const float* from_b = scale_b + Index(blockIdx.x) * padded_steps;
        for (int step = 0; step < steps; ++step, at.advance()) {
            mbarrier_wait(ring.full[at.stage], at.parity);
            wgmma_fence();
            wgmma_tiles(partial, shared.a[at.stage], shared.b[at.stage], tile_row, 0, 0);
            wgmma_commit();
            const float* from_a = scale_a + Index(step) * padded_m;
            StepScales<ScaleTile<rows, columns>, 1> scales;
            scales.a[0][0] = row < m ? from_a[row] : 0.0f;
            scales.a[0][1] = row + 8 < m ? from_a[row + 8] : 0.0f;
            scales.b[0] = from_b[step];
            wgmma_wait<0>();
            release_stage<Alone>(ring.empty[at.stage], 0, lane);
            promote(accumulator, 0, partial, scales);
        }
        const MatrixC<Value> result{c, m, n, 1.0f, 0.0f};
        store_direct(accumulator, result, first_row + tile_row, first_column, thread);
    }
}
