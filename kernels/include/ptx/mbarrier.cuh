// Barriers in shared memory (mbarrier, sm_90; PTX ISA 9.7.13.15). A barrier goes through phases 0, 1, 2, ...
// A phase ends when there have been as many arrivals as mbarrier_init says, and TMA has written all bytes
// that arrivals have announced (mbarrier_arrive_expect). So its end can mean "these bytes have been written"
// as well as "these threads have arrived". A wait names a phase by its parity, 0 or 1: it returns if the
// phase under way has the other parity. So on a new barrier, in phase 0, a wait for parity 1 returns at once.
// What a thread wrote before it arrived is visible to the threads of its block that have waited.
#pragma once

#include "ptx/shared_memory.cuh"

struct Mbarrier {
    unsigned long long state;
};

__device__ inline void mbarrier_init(Mbarrier& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
                 : "memory");
}

// Makes initialised barriers visible to TMA and to the other blocks of the cluster. Other threads may use
// them after a barrier that they share with this one: of the warp, the block or the cluster.
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

// One of the arrivals that mbarrier_init counts (.noinc), made when all cp.async that this thread has started
// have written their data. The thread itself does not wait for them.
__device__ inline void mbarrier_arrive_after_copies(Mbarrier& barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier))
                 : "memory");
}

// Arrives at the barrier that lies at the same place in the shared memory of block `rank` of the cluster,
// which may be this block. The arrival is a release in the scope of the block (.cta): it does not order
// accesses of threads for other blocks. It is enough for a buffer that only TMA writes and only wgmma reads,
// if the arriving thread has waited for its wgmma. A release in the scope of the cluster would order all
// accesses, but it costs a fence of all memory (MEMBAR.GPU), and its acquire empties the L1.
__device__ inline void mbarrier_arrive_at(Mbarrier& barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(&barrier)),
        "r"(rank)
        : "memory");
}

// Whether the phase of this parity has ended. Waits for a limited time only.
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
