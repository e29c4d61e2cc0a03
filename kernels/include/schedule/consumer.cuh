// A consumer of the Hopper kernels with parameters: a warpgroup that multiplies what the producer loads, and
// stores it. BlockTile, Ring, Results: parameters.cuh.
#pragma once

#include "epilogue/warpgroup_store.cuh"
#include "schedule/parameters.cuh"
#include "schedule/tile_scheduler.cuh"
#include "schedule/wgmma_loop.cuh"

template <class Element, Major MajorB, class BlockTile, class Ring, class Results>
struct Shared {
    OperandTile<Element, Major::k, BlockTile::rows> a[Ring::stages];
    OperandTile<Element, MajorB, BlockTile::columns> b[Ring::stages];
    TmaStoreRing<ElementOfC<Element>, BlockTile::consumer_columns, Results::buffers> c[BlockTile::consumers];
    RingBarriers<Ring::stages> ring;
    TilePosition origin[Ring::stages];  // of the tile that a stage belongs to
};

// Multiplies a consumer's part of a tile, of as many columns as there are accumulators for, and stores it.
template <class Cluster, class Results, class Memory, class Value, class Signal, int Fragments, int Registers>
__device__ inline void compute_tile(float (&accumulator)[Fragments][Registers], Consumer<Memory>& consumer,
                                    const MatrixC<Value>& result, const TensorMap& map_c,
                                    Signal& hand_over) {
    Memory& shared = consumer.shared;
    const int held = wgmma_loop<Cluster>(accumulator, consumer, hand_over);
    const TilePosition origin = read_by_lane(consumer.rank, shared.origin[held], consumer.lane);
    wgmma_wait_all(accumulator);
    release_stage<Cluster>(shared.ring.empty[held], consumer.rank, consumer.lane);
    const int row = origin.row + consumer.row, column = origin.column + consumer.column;
    combine_accumulators(accumulator, result, row, column, consumer.thread);
    if constexpr (Results::by_tma) {
        shared.c[consumer.number].template store<Results::evict>(
            accumulator, map_c, row, column, consumer.thread, consumer.number + 1, consumer.next_buffer);
    } else {
        store_direct(accumulator, result, row, column, consumer.thread);
    }
}
