// Template parameters of the Hopper kernels that take many, in groups that travel together.
#pragma once

#include "epilogue/combine.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"

// The block tile, in elements, and the part of it that each consumer multiplies. ConsumersN of the Consumers
// lie beside one another along N, the others along M. Reallocate moves the producer's registers to them.
// Narrow: columns of narrow tiles (even_tiles.cuh), 0 where all are BN wide.
template <int BM, int BN, int Consumers, int ConsumersN, bool Reallocate, int Narrow = 0>
struct BlockTile {
    static constexpr int rows = BM, columns = BN, consumers = Consumers;
    static constexpr int fragments = BM / 64 / (Consumers / ConsumersN);  // of 64 rows, of a consumer
    static constexpr int consumer_columns = BN / ConsumersN;
    // An enumerator: a constant would change the cubins of all variants, and so call for new measurements.
    enum : int { narrow = Narrow };

    // Where a consumer's part begins.
    __device__ static int row(int consumer) { return consumer / ConsumersN * fragments * 64; }
    __device__ static int column(int consumer) { return consumer % ConsumersN * consumer_columns; }

    __device__ static void shrink_producer() {
        if constexpr (Reallocate) shrink_registers<producer_registers<Consumers>>();
    }
    __device__ static void grow_consumer() {
        if constexpr (Reallocate) grow_registers<consumer_registers<Consumers>>();
    }
};

// The stages between the producer and the consumers, and when the L2 evicts what was loaded. Early: the
// producer does not wait for the other warps (roles.cuh).
template <int Stages, Evict EvictA, Evict EvictB, bool Early = false>
struct Ring {
    static constexpr int stages = Stages;
    static constexpr Evict evict_a = EvictA, evict_b = EvictB;
    enum : bool { early = Early };  // as in BlockTile
};

// The order in which blocks that stay take tiles: clusters of Rows x Columns blocks, which load what they
// share once, along the raster (raster.cuh); whether every second tile goes backwards along K; and how many
// steps of K a consumer runs ahead of the next one.
template <class Cluster_, int Raster, bool Serpentine, int Stagger>
struct Schedule {
    using Cluster = Cluster_;
    static constexpr int raster = Raster, stagger = Stagger;
    static constexpr bool serpentine = Serpentine;
};

// How the results leave: straight from registers, or by TMA from Buffers buffers per consumer, of 64 rows x
// 128 bytes each; and when the L2 evicts them.
template <StoreMethod Store, int Buffers, Evict EvictC>
struct Results {
    static constexpr bool by_tma = Store == StoreMethod::staged;
    static constexpr int buffers = Buffers;
    static constexpr Evict evict = EvictC;
};
