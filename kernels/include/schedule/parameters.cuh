// Template parameters of the Hopper kernels that take many, in groups that travel together.
#pragma once

#include "copy/tma.cuh"
#include "schedule/warpgroup.cuh"

// The block tile, in elements, and the part of it that each consumer multiplies. ConsumersN of the Consumers
// lie beside one another along N, the others along M. Reallocate moves the producer's registers to them.
template <int BM, int BN, int Consumers, int ConsumersN, bool Reallocate>
struct Tile {
    static constexpr int rows = BM, columns = BN, consumers = Consumers;
    static constexpr int fragments = BM / 64 / (Consumers / ConsumersN);  // of 64 rows, of a consumer
    static constexpr int consumer_columns = BN / ConsumersN;

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

// The stages between the producer and the consumers, and when the L2 evicts what was loaded.
template <int Stages, Evict EvictA, Evict EvictB>
struct Ring {
    static constexpr int stages = Stages;
    static constexpr Evict evict_a = EvictA, evict_b = EvictB;
};
