// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: several tiles of C per block.
// Rung 4 of docs/ladders/tensor-cores.md: persistent blocks.
//
// The technique: persistent blocks (cutlass, fast-cu). As many blocks start as there are multiprocessors
// (`blocks` in the yaml, 132 by default), and take one tile after the other. So a block starts and fills its
// ring only once, and the producer can load the first Stages steps of the next tile while the consumers store
// this one. The order of the tiles is a threadblock swizzle (schedule/raster.cuh), so that blocks that run
// together read common rows and columns from the L2. Rung 4b is the same kernel row by row, which times the
// order alone.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64. Stages: tiles of A and B in the ring. Raster: width of the threadblock
// swizzle in tiles, 0 for row by row, or hilbert.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"

using Alone = ClusterShape<1, 1>;  // a block by itself, number 0 of its cluster; rung 5 has larger ones
constexpr int consumers = 2;

template <class Element, Major MajorB, int BM, int BN, int Stages>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    RingBarriers<Stages> ring;
};

template <class Element, Major MajorB, int BM, int BN, int Stages, int Raster>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
hopper_persistent(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                  Element* c, int m, int n, int k, float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN, Stages>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
    const TileScheduler<BM, BN, Alone, Raster> scheduler(m, n);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        prefetch(map_a);  // the descriptor, not the matrix
        prefetch(map_b);
        ring.init(consumers * 4);  // a release per warp of the consumers
    }
    __syncthreads();

    RingPosition<Stages> at;  // goes on from tile to tile, on both sides alike
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();  // of all four warps, as setmaxnreg demands
        if (one_of_warpgroup(thread)) {  // one lane of its first warp
            for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
                const TilePosition origin = scheduler.origin(tile, 0);
                for (int step = 0; step < steps; ++step, at.advance()) {
                    auto& a = shared.a[at.stage];
                    auto& b = shared.b[at.stage];
                    ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                    mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                    a.load(map_a, origin.row, step * depth, ring.full[at.stage]);
                    b.load(map_b, origin.column, step * depth, ring.full[at.stage]);
                }
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        constexpr int rows = BM / consumers;
        static_assert(rows % 64 == 0, "a wgmma has 64 rows");
        const int tile_row = (warpgroup - 1) * rows;
        float accumulator[rows / 64][BN / 2];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
            int held = 0;  // stage read by the wgmma group in flight, not yet released
            for (int step = 0; step < steps; ++step, at.advance()) {
                mbarrier_wait(ring.full[at.stage], at.parity);
                wgmma_fence();
                wgmma_tiles(accumulator, shared.a[at.stage], shared.b[at.stage], tile_row, 0, step > 0);
                wgmma_commit();
                if (step > 0) {
                    wgmma_wait<1>();  // those of the step before
                    release_stage<Alone>(ring.empty[held], 0, lane);
                }
                held = at.stage;
            }
            wgmma_wait_all(accumulator);
            release_stage<Alone>(ring.empty[held], 0, lane);  // for the next tile
            const TilePosition origin = scheduler.origin(tile, 0);
            const int row = origin.row + tile_row, column = origin.column;
            combine_accumulators(accumulator, result, row, column, thread);
            store_direct(accumulator, result, row, column, thread);
        }
    }
}
