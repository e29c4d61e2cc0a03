// The producer's way through the ring: one thread copies the tiles of A and B of each step of K as soon as
// their stage is empty, for one tile of C after the other.
#pragma once

#include "mma/operand_tile.cuh"
#include "ptx/warpgroup.cuh"
#include "schedule/ring.cuh"
#include "schedule/tile_scheduler.cuh"

// Whether a block of a cluster loads its first step before it knows that the others have set up their rings.
template <class Ring, class Cluster>
constexpr bool loads_ahead = Ring::early && (Cluster::size > 1);

// Loads the first step of a block's first tile, all of it for this block alone, since other blocks may not
// have set up their rings. Called by all warps of the producer ahead of become_producer.
template <class Ring, class Schedule, class Memory, class Scheduler>
__device__ inline void load_ahead(Memory& shared, const TensorMap& map_a, const TensorMap& map_b,
                                  const Scheduler& scheduler, const BlockWork& work, int thread) {
    using Cluster = typename Schedule::Cluster;
    if constexpr (loads_ahead<Ring, Cluster>) {
        if (work.cluster < scheduler.tiles() && one_of_warpgroup(thread)) {
            const TilePosition origin = scheduler.origin(work.cluster, work.rank);
            const int columns = scheduler.loaded_columns(work.cluster);
            const unsigned own = 1u << work.rank;
            Mbarrier& full = shared.ring.full[0];
            shared.origin[0] = origin;
            mbarrier_arrive_expect(full, shared.a[0].bytes + columns * line_bytes);
            for (int part = 0; part < Cluster::columns; ++part) {
                shared.a[0].template load<Cluster::columns, Ring::evict_a>(map_a, origin.row, 0, full, part,
                                                                           own);
            }
            for (int part = 0; part < Cluster::rows; ++part) {
                shared.b[0].template load<Cluster::rows, Ring::evict_b, Scheduler::load_step>(
                    map_b, origin.column, 0, full, part, own, columns);
            }
        }
    }
}

// A block's work; blocks of a cluster load a part each of what they share. Leaves at shared.origin[stage] of
// which tile the stage is.
template <class Ring, class Schedule, class Memory, class Scheduler>
__device__ inline void produce(Memory& shared, const TensorMap& map_a, const TensorMap& map_b,
                               const Scheduler& scheduler, const BlockWork& work) {
    using Cluster = typename Schedule::Cluster;
    const int rank = work.rank, steps = work.steps;
    auto at = shared.ring.begin();
    bool backwards = false;
    for (int tile = work.cluster; tile < scheduler.tiles();
         tile += work.clusters, backwards = Schedule::serpentine && !backwards) {
        const TilePosition origin = scheduler.origin(tile, rank);
        const int columns = scheduler.loaded_columns(tile);
        for (int step = 0; step < steps; ++step, at.advance()) {
            if (loads_ahead<Ring, Cluster> && step == 0 && tile == work.cluster) continue;
            auto& a = shared.a[at.stage];
            auto& b = shared.b[at.stage];
            Mbarrier& full = shared.ring.full[at.stage];
            const int k = (backwards ? steps - 1 - step : step) * a.depth;
            shared.ring.wait_until_empty(at);
            shared.origin[at.stage] = origin;
            mbarrier_arrive_expect(full, a.bytes + columns * line_bytes);
            a.template load<Cluster::columns, Ring::evict_a>(map_a, origin.row, k, full,
                                                             Cluster::column(rank), Cluster::row_mask(rank));
            b.template load<Cluster::rows, Ring::evict_b, Scheduler::load_step>(
                map_b, origin.column, k, full, Cluster::row(rank), Cluster::column_mask(rank), columns);
        }
    }
}
