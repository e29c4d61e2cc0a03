// Stores to the shared memory of a block of the cluster that are counted where they arrive (st.async, sm_90;
// PTX ISA 9.7.9.12): their bytes end a phase of a barrier of that block, as bytes of TMA do. A thread that
// has waited for the phase sees them. A barrier of the cluster orders all accesses, and so waits until stores
// to global memory are done; this wait is for the bytes alone.
#pragma once

#include "ptx/mbarrier.cuh"

// Where `here` lies in the shared memory of block `rank` of the cluster, as an address for st.async.
__device__ inline unsigned address_in_block(const void* here, int rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
    return there;
}

// Writes two numbers side by side to where `to` lies in block `rank`, and counts 8 bytes at its `full`.
__device__ inline void store_pair_in_block(void* to, float first, float second, Mbarrier& full, int rank) {
    const unsigned at = address_in_block(to, rank), counted = address_in_block(&full, rank);
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(at),
        "f"(first), "f"(second), "r"(counted)
        : "memory");
}
