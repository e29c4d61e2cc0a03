// C = A @ B with scales by block, E4m3 operands, B stored as N x K: several tiles of C per block.
// Rung 4: persistent blocks along a raster, results stored by TMA; with parameters.
//
// The technique: what hopper_fp8_promoted has around its loop. 132 blocks stay and take one tile after the
// other, so that a block starts and fills its ring once, and loads the next tile's first stages while it
// stores (rung 4 of the Hopper ladder); the raster keeps what blocks share in the L2; results leave through
// shared memory by TMA. Scales take the ring with their tiles, as in rungs 2 and 3, so that nothing about
// them knows of tiles but their column's place in its block of 128.
// Without Scaled it is hopper_fp8_promoted: the same loops, and scales are neither copied nor read. This is
// the price of scales. To expect: next to none, since an fma takes as long as an addition.
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

template <int Probe, class Inner>
struct ProbeScales {
    float one[2];
    Inner inner;
    float held[8];
    __device__ ProbeScales read(int number) {
        if constexpr (Probe == 3) {
            auto got = inner.read(number);
            held[0] = got.a[0][0]; held[1] = got.a[0][1]; held[2] = got.b[0];
            held[3] = got.b[sizeof(got.b) / 4 - 1];
        }
        return *this;
    }
};
template <int Fragments, int Registers, int Partial, int Probe, class Inner>
__device__ inline void promote(float (&accumulator)[Fragments][Registers], int part,
                               float (&partial)[1][Partial], const ProbeScales<Probe, Inner>& scales) {
    constexpr int split = Registers / Partial;
    const int fragment = part / split, first = part % split * Partial;
    fence_registers(partial[0]);
    if constexpr (Probe == 3) {
        if (part == 0) {
            asm volatile("" ::"f"(scales.held[0]), "f"(scales.held[1]), "f"(scales.held[2]), "f"(scales.held[3]));
        }
    }
#pragma unroll
    for (int i = 0; i < Partial; ++i) {
        float& sum = accumulator[fragment][first + i];
        if constexpr (Probe == 1) sum = fmaf(partial[0][i], scales.one[i / 2 % 2], sum);
        else sum += partial[0][i];
    }
}

// The producer: copies the tiles and their scales of one tile of C after the other.
template <int Scaled, bool Serpentine, class Memory, class Scheduler>
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
            mbarrier_arrive_expect(full, a.bytes + b.bytes + (Scaled >= 2 ? scales.bytes : 0));
            a.load(map_a, origin.row, block * a.depth, full);
            b.load(map_b, origin.column, block * b.depth, full);
            if constexpr (Scaled >= 2) {
                scales.load(map_scale_a, map_scale_b, origin.row, origin.column, block, full);
            }
        }
    }
}

// A consumer: multiplies and promotes its part of one tile after the other, and stores it.
template <int Scaled, class BlockTile, class Schedule, class Promotion, class Results, class Memory,
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
            ProbeScales<Scaled, decltype(scales)> probe{{1.0f, 1.0f}, scales, {}};
            asm volatile("" : "+f"(probe.one[0]), "+f"(probe.one[1]));
            const float first = scheduler.rows > 0 ? 1.0f : float(thread);
            const float second = scheduler.columns > 0 ? 1.0f : float(thread + 1);
            probe.one[0] = __int_as_float(hide_from_compiler(__float_as_int(first)));
            probe.one[1] = __int_as_float(hide_from_compiler(__float_as_int(second)));
            promotion_loop<Alone, Promotion>(accumulator, consumer, hand_over, probe);
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

template <int Scaled, class Value, class BlockTile, class Ring, class Schedule, class Promotion,
          class Results>
__global__ void __launch_bounds__((BlockTile::consumers + 1) * warpgroup_threads, 1)
probe_scaled(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
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
