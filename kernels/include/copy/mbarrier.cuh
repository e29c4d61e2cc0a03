// Barriers in shared memory (mbarrier, sm_90; PTX ISA 9.7.13.15). A phase of a barrier ends when all expected
// arrivals and all expected bytes are there; a wait names the phase by its parity. TMA counts the bytes that
// it has written, so a phase can mean "these bytes are here" as well as "all threads were here". What a
// thread did before its arrival is visible after the wait. A barrier that was just initialised lets a wait
// for parity 1 pass.
#pragma once

#include "copy/shared_memory.cuh"

struct Mbarrier {
    unsigned long long state;
};

__device__ inline void mbarrier_init(Mbarrier& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
                 : "memory");
}

// Makes initialised barriers visible to TMA and to the other blocks of the cluster; a barrier of the block or
// of the cluster must follow.
__device__ inline void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// One arrival that also expects `bytes` more bytes in this phase.
__device__ inline void mbarrier_arrive_expect(Mbarrier& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
                 "r"(bytes)
                 : "memory");
}

__device__ inline void mbarrier_arrive(Mbarrier& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// One arrival, expected as any other, once the copies that this thread has started by cp.async are there.
__device__ inline void mbarrier_arrive_after_copies(Mbarrier& barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier))
                 : "memory");
}

// Arrives at the barrier of the same name in block `rank` of the cluster, which may be this one. It orders
// accesses of threads of this block only. Across blocks it may guard what only the tensor cores and TMA read
// and write, once the arriving thread has waited for them. A release to the cluster would order all accesses,
// but it costs a fence of all memory (MEMBAR.GPU), and its acquire empties the L1.
__device__ inline void mbarrier_arrive_at(Mbarrier& barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(&barrier)),
        "r"(rank)
        : "memory");
}

// Whether the phase of this parity has ended, after a short wait at most.
__device__ inline bool mbarrier_try_wait(Mbarrier& barrier, unsigned parity) {
    int ended;
    asm volatile(
        "{\n.reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.b32 %0, 1, 0, ended;\n}"
        : "=r"(ended) : "r"(shared_address(&barrier)), "r"(parity) : "memory");
    return ended;
}

__device__ inline void mbarrier_wait(Mbarrier& barrier, unsigned parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}
