// The thread that stores results of attention by TMA, so that no consumer waits for a store.
#pragma once

#include "epilogue/row_tile_store.cuh"
#include "schedule/ring.cuh"

// Stores each tile that this block takes when the consumers have written it in the place of Q, and hands the
// place to the copy of another Q.
template <class Shared, class Order>
__device__ inline void store_tiles(Shared& shared, const Order& order, const TensorMap& map_o) {
    for (RingPosition<2> at;; at.advance()) {
        shared.q_ring.wait_until_full(at);
        const int index = shared.index[at.stage];
        if (index >= order.count()) break;
        const auto tile = order.at(index);
        mbarrier_wait(shared.written[at.stage], at.parity);
        store_rows(shared.q[at.stage], {map_o, tile.head}, tile.row);
        shared.q_ring.release(at, 0);
    }
}

// The same where tiles are cut along the keys (stream_k.cuh): the block with a tile's last keys has its
// results.
template <class Shared, class Order, class Cut>
__device__ inline void store_tiles(Shared& shared, const Order& order, const Cut& cut,
                                   const TensorMap& map_o) {
    for (RingPosition<2> at;; at.advance()) {
        shared.q_ring.wait_until_full(at);
        const auto work = shared.work[at.stage];
        if (work.steps == 0) break;
        const auto tile = order.at(work.tile);
        mbarrier_wait(shared.written[at.stage], at.parity);
        if (work.has_last_step(cut.steps)) store_rows(shared.q[at.stage], {map_o, tile.head}, tile.row);
        shared.q_ring.release(at, 0);
    }
}
