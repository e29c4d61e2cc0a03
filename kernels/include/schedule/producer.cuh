// The producer's way through the ring: one thread copies the tiles of A and B of each step of K as soon as
// their stage is empty, for one tile of C after the other.
#pragma once

#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "schedule/tile_scheduler.cuh"

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
        for (int step = 0; step < steps; ++step, at.advance()) {
            auto& a = shared.a[at.stage];
            auto& b = shared.b[at.stage];
            Mbarrier& full = shared.ring.full[at.stage];
            const int k = (backwards ? steps - 1 - step : step) * a.depth;
            shared.ring.wait_until_empty(at);
            shared.origin[at.stage] = origin;
            mbarrier_arrive_expect(full, a.bytes + b.bytes);
            a.template load<Cluster::columns, Ring::evict_a>(map_a, origin.row, k, full,
                                                             Cluster::column(rank), Cluster::row_mask(rank));
            b.template load<Cluster::rows, Ring::evict_b>(map_b, origin.column, k, full, Cluster::row(rank),
                                                          Cluster::column_mask(rank));
        }
    }
}
