// C = A @ B with scales by block, E4m3 operands, B stored as N x K: several tiles of C per block.
// Rung 4: persistent blocks along a raster, results stored by TMA; with parameters.
//
// The technique: what hopper_fp8_promoted has around its loop. 132 blocks stay and take one tile after the
// other, so that a block starts and fills its ring once, and loads the next tile's first stages while it
// stores (rung 4 of the Hopper ladder); the raster keeps what blocks share in the L2; results leave through
// shared memory by TMA. Scales take the ring with their tiles, as in rungs 2 and 3, so that all they need to
// know of a tile is where its columns begin in their block of 128, and which way it goes along K.
// Without Scaled it is hopper_fp8_promoted: the same loops, and scales are neither copied nor read. What is
// slower with them is their price.
//
// BlockTile, Ring, Schedule, Results: schedule/parameters.cuh. Promotion: schedule/promotion_loop.cuh.
// Value: of C, __nv_bfloat16 or float.

#include "epilogue/warpgroup_store.cuh"
#include "mma/block_scales.cuh"
#include "schedule/hand_over.cuh"
#include "schedule/parameters.cuh"
#include "schedule/promotion_loop.cuh"
#include "schedule/roles.cuh"
#include "schedule/tile_scheduler.cuh"

using Alone = ClusterShape<1, 1>;

template <class Value, class BlockTile, class Ring, class Results>
struct Shared {
    OperandTile<E4m3, Major::k, BlockTile::rows> a[Ring::stages];
    OperandTile<E4m3, Major::k, BlockTile::columns> b[Ring::stages];
    TmaStoreRing<Value, BlockTile::columns, Results::buffers> c[BlockTile::consumers];
    ScaleTile<BlockTile::rows, BlockTile::columns> scales[Ring::stages];
    RingBarriers<Ring::stages> ring;
};

// The producer: copies the tiles and their scales of one tile of C after the other.
template <bool Scaled, bool Serpentine, class Memory, class Scheduler>
__device__ inline void produce(Memory& shared, const TensorMap& map_a, const TensorMap& map_b,
                               const TensorMap& map_scale_a, const TensorMap& map_scale_b,
                               const Scheduler& scheduler, int steps) {
    auto at = shared.ring.begin();
    bool backwards = false;
    for (int tile = blockIdx.x; tile < scheduler.tiles();
         tile += gridDim.x, backwards = Serpentine && !backwards) {
        const TilePosition origin = scheduler.origin(tile, 0);
        for (int step = 0; step < steps; ++step, at.advance()) {
            auto& a = shared.a[at.stage];
            auto& b = shared.b[at.stage];
            auto& scales = shared.scales[at.stage];
            Mbarrier& full = shared.ring.full[at.stage];
            const int block = backwards ? steps - 1 - step : step;  // of K
            shared.ring.wait_until_empty(at);
            mbarrier_arrive_expect(full, a.bytes + b.bytes + (Scaled ? scales.bytes : 0));
            a.load(map_a, origin.row, block * a.depth, full);
            b.load(map_b, origin.column, block * b.depth, full);
            if constexpr (Scaled) {
                scales.load(map_scale_a, map_scale_b, origin.row, origin.column, block, full);
            }
        }
    }
}

// A consumer: multiplies and promotes its part of one tile after the other, and stores it.
template <bool Scaled, class BlockTile, class Schedule, class Promotion, class Results, class Memory,
          class Scheduler>
__device__ inline void consume(Memory& shared, const TensorMap& map_c, const Scheduler& scheduler, int steps,
                               int number, int thread) {
    Consumer<Memory> consumer(shared, 0, steps, number, thread, BlockTile::row(number), 0);
    float accumulator[BlockTile::fragments][BlockTile::columns / 2];
    // Without a tile nobody runs ahead, and nobody waits for it.
    Stagger<Schedule::stagger, BlockTile::consumers> hand_over(number,
                                                               blockIdx.x < scheduler.tiles() ? steps : 0);
    bool backwards = false;
    for (int tile = blockIdx.x; tile < scheduler.tiles();
         tile += gridDim.x, backwards = Schedule::serpentine && !backwards) {
        clear(accumulator);
        if constexpr (Scaled) {
            using Tile = ScaleTile<BlockTile::rows, BlockTile::columns>;
            StageScales<Tile, BlockTile::fragments> scales(shared.scales, consumer.row, thread,
                                                           scheduler.origin(tile, 0).column,
                                                           backwards ? steps - 1 : 0, backwards ? -1 : 1);
            promotion_loop<Alone, Promotion>(accumulator, consumer, hand_over, scales);
        } else {
            promotion_loop<Alone, Promotion>(accumulator, consumer, hand_over);
        }
        const TilePosition origin = scheduler.origin(tile, 0);
        shared.c[number].template store<Results::evict>(accumulator, map_c, origin.row + consumer.row,
                                                        origin.column, thread, number + 1,
                                                        consumer.next_buffer);
    }
    if (thread == 0) wait_for_stores();
}

template <bool Scaled, class Value, class BlockTile, class Ring, class Schedule, class Promotion,
          class Results>
__global__ void __launch_bounds__((BlockTile::consumers + 1) * warpgroup_threads, 1)
hopper_fp8_scaled(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                  const __grid_constant__ TensorMap map_scale_a,
                  const __grid_constant__ TensorMap map_scale_b, const __grid_constant__ TensorMap map_c,
                  int m, int n, int k) {
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<Value, BlockTile, Ring, Results>*>(memory);
    const TileScheduler<BlockTile::rows, BlockTile::columns, Alone, Schedule::raster> scheduler(m, n);
    const int steps = ceil_div(k, shared.a[0].depth);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads;
    // A stage is released by every warp of the consumers.
    set_up_ring<Ring, Alone>(shared.ring, BlockTile::consumers * 4, map_a, map_b, map_c);
    if (warpgroup == 0) {
        become_producer<BlockTile, Ring>();
        if (one_of_warpgroup(thread)) {
            produce<Scaled, Schedule::serpentine>(shared, map_a, map_b, map_scale_a, map_scale_b, scheduler,
                                                  steps);
        }
    } else {
        become_consumer<BlockTile, Ring>();
        consume<Scaled, BlockTile, Schedule, Promotion, Results>(shared, map_c, scheduler, steps,
                                                                 warpgroup - 1, thread);
    }
}
