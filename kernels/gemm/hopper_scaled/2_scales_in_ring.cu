// C = A @ B with scales by block, E4m3 operands, B stored as N x K: one tile of C per block.
// Rung 2: scales in the ring, beside the tiles.
//
// The technique: scales prefetched beside the tiles. In rung 1 a consumer waits for its scales in every step.
// Here the producer copies them by TMA into the stage of the tiles that they belong to, 512 bytes for A and
// sixteen for B, as many steps ahead, and the stage's barrier counts their bytes as well
// (mma/block_scales.cuh). A consumer then reads three numbers from shared memory while its wgmma run. All
// lanes of a warp read before it releases the stage: wgmma_wait lies in between, at which they meet.
// The price: 640 bytes a stage, and two more copies a step. To expect: what is left of a step beside the 512
// cycles of the tensor cores is the 64 fma of each thread, in which its consumer does not multiply.
//
// Value: of C, __nv_bfloat16 or float. Stages: tiles of A and B in the ring, with their scales.

#include "epilogue/warpgroup_store.cuh"
#include "mma/block_scales.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "types/index.cuh"

using Alone = ClusterShape<1, 1>;
constexpr int consumers = 2;
constexpr int rows = consumers * 64, columns = 128;  // of the block tile

template <int Stages>
struct Shared {
    OperandTile<E4m3, Major::k, rows> a[Stages];
    OperandTile<E4m3, Major::k, columns> b[Stages];
    ScaleTile<rows, columns> scales[Stages];
    RingBarriers<Stages> ring;
};

template <class Value, int Stages>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
scales_in_ring(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               const __grid_constant__ TensorMap map_scale_a, const __grid_constant__ TensorMap map_scale_b,
               Value* c, int m, int n, int k) {
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<Stages>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
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
                auto& scales = shared.scales[at.stage];
                Mbarrier& full = ring.full[at.stage];
                ring.wait_until_empty(at);
                mbarrier_arrive_expect(full, a.bytes + b.bytes + scales.bytes);
                a.load(map_a, first_row, step * depth, full);
                b.load(map_b, first_column, step * depth, full);
                scales.load(map_scale_a, map_scale_b, first_row, first_column, step, full);
            }
        }
    } else {  // a consumer
        const int tile_row = (warpgroup - 1) * 64;
        float accumulator[1][columns / 2], partial[1][columns / 2];
        clear(accumulator);
        StageScales<ScaleTile<rows, columns>, 1> scales(shared.scales, tile_row, thread, first_column);
        for (int step = 0; step < steps; ++step, at.advance()) {
            mbarrier_wait(ring.full[at.stage], at.parity);
            wgmma_fence();
            wgmma_tiles(partial, shared.a[at.stage], shared.b[at.stage], tile_row, 0, 0);
            wgmma_commit();
            const auto step_scales = scales.read(at.stage);
            wgmma_wait<0>();
            release_stage<Alone>(ring.empty[at.stage], 0, lane);
            promote(accumulator, 0, partial, step_scales);
        }
        const MatrixC<Value> result{c, m, n, 1.0f, 0.0f};
        store_direct(accumulator, result, first_row + tile_row, first_column, thread);
    }
}
