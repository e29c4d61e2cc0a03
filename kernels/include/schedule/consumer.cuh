// What the consumers of hopper_gemm and hopper_ping_pong do with a tile, and the shared memory of their
// blocks. Tile, Ring, Results: parameters.cuh.
#pragma once

#include "epilogue/warpgroup_store.cuh"
#include "schedule/parameters.cuh"
#include "schedule/tile_scheduler.cuh"
#include "schedule/wgmma_loop.cuh"

template <class Element, Major MajorB, class Tile, class Ring, class Results>
struct Shared {
    OperandTile<Element, Major::k, Tile::rows> a[Ring::stages];
    OperandTile<Element, MajorB, Tile::columns> b[Ring::stages];
    TmaStoreRing<ElementOfC<Element>, Tile::consumer_columns, Results::buffers> c[Tile::consumers];
    RingBarriers<Ring::stages> ring;
    TilePosition origin[Ring::stages];  // of the tile that a stage belongs to
};

// The epilogue of a consumer, for its part of a tile.
template <class Results, class Value, class Buffers, int Fragments, int Registers>
__device__ inline void store(float (&accumulator)[Fragments][Registers], const MatrixC<Value>& c, int row,
                             int column, int thread, int barrier, Buffers& buffers, int& next_buffer) {
    combine_accumulators(accumulator, c.c, c.m, c.n, row, column, c.alpha, c.beta, thread);
    if constexpr (Results::by_tma) {
        buffers.template store<Results::evict>(accumulator, c.map, row, column, thread, barrier, next_buffer);
    } else {
        store_direct(accumulator, c.c, c.m, c.n, row, column, thread);
    }
}

// A consumer's part of a tile, of as many columns as there are accumulators for. Calls after_step(step) when
// the wgmma of a step have started.
template <class Cluster, class Results, class Memory, class Value, class At, class AfterStep, int Fragments,
          int Registers>
__device__ inline void compute_tile(float (&accumulator)[Fragments][Registers], Memory& shared,
                                    const MatrixC<Value>& c, int rank, int steps, int consumer, int thread,
                                    int tile_row, int tile_column, int lane, At& at, AfterStep& after_step,
                                    int& next_buffer) {
    const int held = wgmma_loop<Cluster>(accumulator, shared.a, shared.b, shared.ring, at, steps, tile_row,
                                         tile_column, rank, lane, after_step);
    const TilePosition origin = read_by_lane(rank, shared.origin[held], lane);
    wgmma_wait_all(accumulator);
    release_stage<Cluster>(shared.ring.empty[held], rank, lane);
    store<Results>(accumulator, c, origin.row + tile_row, origin.column + tile_column, thread, consumer + 1,
                   shared.c[consumer], next_buffer);
}
