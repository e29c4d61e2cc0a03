// The Tensor Memory Accelerator (TMA, sm_90; PTX ISA 9.7.9.27): one thread starts the copy of a box of a
// matrix between global and shared memory. A tensor map holds the matrix's address, extents and the box with
// its swizzle. A load fills what lies outside of the matrix with zeros and counts the whole box at its
// barrier; a store skips the outside. TMA works through the async proxy: where threads have written to shared
// memory, each of them calls fence_async_proxy(), and a barrier follows, before a store is started.
#pragma once

#include "ptx/mbarrier.cuh"

struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

__device__ inline void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The L2's eviction policy for what a copy has loaded: as usual, before other lines or after them (PTX ISA
// 9.7.9.15). Data that are read once and evicted first replace one another, and not dirty lines, which would
// have to be written to memory.
enum class Evict { normal, first, last };

template <Evict Policy>
__device__ inline unsigned long long l2_policy() {
    static_assert(Policy != Evict::normal, "needs no policy");
    unsigned long long policy;
    if constexpr (Policy == Evict::first) {
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    } else {
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    }
    return policy;
}

// One of the matrices of a tensor map with three extents, by its number. Boxes of such a map lie in one
// matrix: what is outside of it reads as zeros, and not as the next one.
struct MatrixOfMap {
    const TensorMap& map;
    int number;
};

// Only a multicast names the shared memory of the cluster: on sm_120 ptxas makes any copy to that a call into
// the system, which takes stack from the driver. On sm_90 both are one instruction.
#define LADDER_TMA_LOAD "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
#define LADDER_TMA_MULTICAST \
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"

// Loads the box whose first element is (row, column) to `to` in this block, and counts it at `full`.
template <Evict Policy = Evict::normal>
__device__ inline void tma_load(void* to, const TensorMap& map, int row, int column, Mbarrier& full) {
    if constexpr (Policy == Evict::normal) {
        asm volatile(LADDER_TMA_LOAD " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)), "l"(&map),
                     "r"(column), "r"(row), "r"(shared_address(&full))
                     : "memory");
    } else {
        asm volatile(LADDER_TMA_LOAD
                     ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                     "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)), "l"(l2_policy<Policy>())
                     : "memory");
    }
}

template <Evict Policy = Evict::normal>
__device__ inline void tma_load(void* to, const MatrixOfMap& from, int row, int column, Mbarrier& full) {
    static_assert(Policy == Evict::normal, "written for the usual policy");
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
        "l"(&from.map), "r"(column), "r"(row), "r"(from.number), "r"(shared_address(&full))
        : "memory");
}

// The same to the same place, and counted at the same barrier, in every block of the cluster whose bit
// `blocks` has.
template <Evict Policy = Evict::normal>
__device__ inline void tma_load_multicast(void* to, const TensorMap& map, int row, int column, Mbarrier& full,
                                          unsigned blocks) {
    const auto mask = static_cast<unsigned short>(blocks);
    if constexpr (Policy == Evict::normal) {
        asm volatile(LADDER_TMA_MULTICAST " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                     "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)), "h"(mask)
                     : "memory");
    } else {
        asm volatile(LADDER_TMA_MULTICAST
                     ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(shared_address(to)),
                     "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)), "h"(mask),
                     "l"(l2_policy<Policy>())
                     : "memory");
    }
}

__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Starts the store of a box; stores of a thread are collected into groups.
template <Evict Policy = Evict::normal>
__device__ inline void tma_store(const TensorMap& map, int row, int column, const void* from) {
    if constexpr (Policy == Evict::normal) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
            "r"(column), "r"(row), "r"(shared_address(from))
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], "
            "%4;" ::"l"(&map),
            "r"(column), "r"(row), "r"(shared_address(from)), "l"(l2_policy<Policy>())
            : "memory");
    }
}

__device__ inline void tma_store(const MatrixOfMap& to, int row, int column, const void* from) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&to.map),
        "r"(column), "r"(row), "r"(to.number), "r"(shared_address(from))
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
