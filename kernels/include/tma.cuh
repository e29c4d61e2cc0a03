// The copy engine (TMA, sm_90; PTX ISA 9.7.9.27): one thread starts the copy of a box of a matrix between global and shared
// memory. A tensor map holds the matrix's address, extents and the box with its swizzle. A load fills what lies outside of
// the matrix with zeros and counts the whole box at its barrier; a store leaves the outside out.
// The engine works through the async proxy: shared memory that threads have written needs fence_async_proxy() in each
// of them, and then a barrier, before a store is started.
#pragma once

#include "mbarrier.cuh"

struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

__device__ inline void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads the box whose first element is (row, column) to `to` in this block, and counts it at `full`.
__device__ inline void tma_load(void* to, const TensorMap& map, int row, int column, Mbarrier& full) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
            "r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full))
        : "memory");
}

// The same to the same place, and counted at the same barrier, in every block of the cluster whose bit `blocks` has.
__device__ inline void tma_load_multicast(void* to, const TensorMap& map, int row, int column, Mbarrier& full,
                                          unsigned blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(blocks))
        : "memory");
}

__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Starts the store of a box; stores of a thread are collected into groups.
__device__ inline void tma_store(const TensorMap& map, int row, int column, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                 "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
}

__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most Pending of this thread's newest groups still read shared memory.
template <int Pending>
__device__ inline void wait_for_store_reads() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// Waits until all of this thread's stores have been written.
__device__ inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
