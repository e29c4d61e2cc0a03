// A ring of Stages buffers between one producer and its consumers: each stage has a barrier "full" and a
// barrier "empty". Both sides walk the stages in the same order, and a barrier's phase ends once per pass
// through the ring, so the parity of the pass names the phase. The consumer waits for `full` with it. The
// producer waits for `empty` with the other parity: on the first pass that wait returns at once, because all
// buffers are empty; on pass p > 0 it waits for the release of pass p - 1.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

template <int Stages>
struct RingPosition {
    int stage = 0;
    unsigned parity = 0;  // of the pass, for `full`; the producer's `empty` takes the other

    __host__ __device__ constexpr void advance() {
        ++stage;
        if (stage == Stages) {
            stage = 0;
            parity ^= 1;
        }
    }

    __host__ __device__ constexpr void advance(int stages) {
        const int next = stage + stages;
        stage = next % Stages;
        parity ^= next / Stages % 2;
    }
};

// The same for stages that hold their barriers themselves: an offset in bytes, so that addresses are an
// offset plus an immediate.
template <class Stage, int Stages>
struct RingOffset {
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

    // Where both sides begin.
    __host__ __device__ static constexpr RingPosition<Stages> begin() { return {}; }

    // One thread. `full` has the producers' arrivals: of TMA one, beside its bytes.
    __device__ void init(int releases, int arrivals = 1) {
        for (int stage = 0; stage < Stages; ++stage) {
            mbarrier_init(full[stage], arrivals);
            mbarrier_init(empty[stage], releases);
        }
        fence_mbarrier_init();
    }

    // The producer's wait for the releases of all blocks that read what it writes.
    __device__ void wait_until_empty(const RingPosition<Stages>& at) {
        mbarrier_wait(empty[at.stage], at.parity ^ 1);
    }

    // The producer's copy of one tile, from `first` on, when its stage is empty.
    template <class Tile, class Map>
    __device__ void load(Tile (&tile)[Stages], const RingPosition<Stages>& at, const Map& from, int first) {
        wait_until_empty(at);
        mbarrier_arrive_expect(full[at.stage], Tile::bytes);
        tile[at.stage].load(from, first, full[at.stage]);
    }

    // The consumer's wait for such a copy.
    __device__ void wait_until_full(const RingPosition<Stages>& at) {
        mbarrier_wait(full[at.stage], at.parity);
    }

    // One release by a warp, where no other block writes to the ring.
    __device__ void release(const RingPosition<Stages>& at, int lane) {
        if (lane == 0) mbarrier_arrive(empty[at.stage]);
    }

    // A stage that the consumer does not need, but has to release.
    __device__ void pass(RingPosition<Stages>& at, int lane) {
        wait_until_full(at);
        release(at, lane);
        at.advance();
    }
};

// One release of a stage by a warp that has waited for its wgmma: in its own block and in the blocks of the
// cluster that write parts of its operands. Every warp releases, because its wait covers its own part of the
// wgmma only.
template <class Cluster>
__device__ inline void release_stage(Mbarrier& empty, int rank, int lane) {
    if constexpr (Cluster::size == 1) {
        if (lane == 0) mbarrier_arrive(empty);
    } else {
        if (lane < Cluster::size && Cluster::are_partners(rank, lane)) mbarrier_arrive_at(empty, lane);
    }
}
