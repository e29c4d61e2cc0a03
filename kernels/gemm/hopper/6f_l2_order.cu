// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: several tiles of C per block.
// Rung 6f of docs/ladders/tensor-cores.md: an order of tiles for the L2. It changes 6d_serpentine.
//
// The technique: the order of tiles, made for the L2. At M = N = 4096 there are 512 tiles of 128 x 256, which
// 128 blocks compute in four full waves. A strip is 32 x 2 tiles, so a wave is two of the eight strips. Each
// of the four waves needs all of A and its own quarter of B. So A should stay in the L2, and lines of B are
// marked to be evicted first (Evict::first). Four multiprocessors stay idle, which costs no wave: 512 tiles
// take four on 132 blocks too. Blocks and strips are not in this file but in its yaml: `blocks: 128` and
// `raster: 2`. Every second wave goes backwards along K, as in 6d_serpentine. There it begins with what the
// L2 still holds of B, here with what it holds of A. What is saved is reads of device memory, so expect a
// gain only where these are the limit.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64. Stages: tiles of A and B in the ring. Raster: width of the threadblock
// swizzle in tiles, 0 for row by row, or hilbert. Buffers: of 64 rows x 128 bytes for results on their way,
// per consumer.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"

using Alone = ClusterShape<1, 1>;
constexpr int consumers = 2;

template <class Element, Major MajorB, int BM, int BN, int Stages, int Buffers>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    TmaStoreRing<Element, BN, Buffers> c[consumers];
    RingBarriers<Stages> ring;
};

template <class Element, Major MajorB, int BM, int BN, int Stages, int Raster, int Buffers>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
hopper_l2_order(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                const __grid_constant__ TensorMap map_c, Element* c, int m, int n, int k, float alpha,
                float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN, Stages, Buffers>*>(memory);
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
        shrink_registers<producer_registers<consumers>>();
        if (one_of_warpgroup(thread)) {
            bool backwards = false;
            for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x, backwards = !backwards) {
                const TilePosition origin = scheduler.origin(tile, 0);
                for (int step = 0; step < steps; ++step, at.advance()) {
                    auto& a = shared.a[at.stage];
                    auto& b = shared.b[at.stage];
                    const int k_of_step = (backwards ? steps - 1 - step : step) * depth;
                    ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                    mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                    a.load(map_a, origin.row, k_of_step, ring.full[at.stage]);
                    // The load of 6d_serpentine, spelled out to name the policy: one block, part 0, mask 1.
                    b.template load<1, Evict::first>(map_b, origin.column, k_of_step, ring.full[at.stage],
                                                     0, 1);
                }
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        constexpr int rows = BM / consumers;
        static_assert(rows % 64 == 0, "a wgmma has 64 rows");
        const int consumer = warpgroup - 1, tile_row = consumer * rows;
        float accumulator[rows / 64][BN / 2];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        constexpr int start_barrier = consumers + 1;  // a named barrier: 1 and 2 are the consumers' own
        bool leads = consumer == 0;                   // until the first step of its first tile
        // A block without a tile has no first step: nobody would arrive at the barrier.
        if (!leads && blockIdx.x < scheduler.tiles()) warpgroup_barrier<2>(start_barrier);
        for (int tile = blockIdx.x, next_buffer = 0; tile < scheduler.tiles(); tile += gridDim.x) {
            int held = 0;
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
                if (leads) warpgroup_arrive<2>(start_barrier);  // the second consumer may begin
                leads = false;
            }
            wgmma_wait_all(accumulator);
            release_stage<Alone>(ring.empty[held], 0, lane);  // for the next tile
            const TilePosition origin = scheduler.origin(tile, 0);
            const int row = origin.row + tile_row, column = origin.column;
            combine_accumulators(accumulator, result, row, column, thread);
            shared.c[consumer].store(accumulator, map_c, row, column, thread, warpgroup, next_buffer);
        }
        if (thread == 0) wait_for_stores();  // it started them
    }
}
