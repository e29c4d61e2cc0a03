// A ring of Stages buffers between one producer and its consumers: each stage has a barrier that says "full" and one that
// says "empty". Both sides walk the stages in the same order, and a barrier's phase ends once per round, so the parity of
// the round names it. The consumer waits for `full` with its parity. The producer waits for `empty` with the other one: in
// the first round that wait passes, because all buffers are empty; in round r > 0 it is for the release of round r - 1.
#pragma once

#include "cluster.cuh"
#include "mbarrier.cuh"

template <int Stages>
struct RingPosition {
    int stage = 0;
    unsigned parity = 0;  // of the round, for `full`; the producer's `empty` takes the other

    __host__ __device__ constexpr void advance() {
        ++stage;
        if (stage == Stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// The same for stages that hold their barriers themselves: an offset in bytes, from which everything lies at constants.
template <class Stage, int Stages>
struct RingWalk {
    int offset = 0;
    unsigned parity = 0;

    __device__ void advance() {
        offset += sizeof(Stage);
        if (offset == Stages * sizeof(Stage)) {
            offset = 0;
            parity ^= 1;
        }
    }
    __device__ Stage& in(unsigned char* memory) const { return *reinterpret_cast<Stage*>(memory + offset); }
};

template <int Stages>
struct RingBarriers {
    Mbarrier full[Stages], empty[Stages];

    // One thread. `full` has one arrival, the producer's, beside its bytes.
    __device__ void init(int releases) {
        for (int stage = 0; stage < Stages; ++stage) {
            mbarrier_init(full[stage], 1);
            mbarrier_init(empty[stage], releases);
        }
        fence_mbarrier_init();
    }

    // The producer's wait, for releases of all blocks that read what it writes.
    __device__ void wait_until_empty(const RingPosition<Stages>& at) { mbarrier_wait(empty[at.stage], at.parity ^ 1); }
};

// One release of a stage by a warp, whose products must have been waited for: in its own block and in those of the cluster
// that write parts of its operands. A warp answers for its own part of a warpgroup's product only, so every warp releases.
template <class Cluster>
__device__ inline void release_stage(Mbarrier& empty, int rank, int lane) {
    if constexpr (Cluster::size == 1) {
        if (lane == 0) mbarrier_arrive(empty);
    } else {
        if (lane < Cluster::size && Cluster::are_partners(rank, lane)) mbarrier_arrive_at(empty, lane);
    }
}
