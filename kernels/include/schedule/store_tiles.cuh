// How results of attention leave by TMA, so that no consumer waits for a store: a thread stores what replaced
// Q, or warps store what they wrote to a stage of a ring.
#pragma once

#include "epilogue/row_tile_store.cuh"
#include "schedule/ring.cuh"

// Stores each tile that this block takes when the consumers have written it in the place of Q, and hands the
// place to the copy of another Q.
template <class Shared, class Order>
__device__ inline void store_tiles(Shared& shared, const Order& order, const TensorMap& map_o) {
    for (RingPosition<2> at;; at.advance()) {
        shared.q_ring.wait_until_full(at);
        const int index = shared.index[at.stage];
        if (index >= order.count()) break;
        const auto tile = order.at(index);
        mbarrier_wait(shared.written[at.stage], at.parity);
        store_rows(shared.q[at.stage], {map_o, tile.head}, tile.row);
        shared.q_ring.release(at, 0);
    }
}

// The same where `work` says all (row_work.cuh).
template <class Shared>
__device__ inline void store_tiles(Shared& shared, const TensorMap& map_o) {
    bool is_last = false;
    for (RingPosition<2> at; !is_last; at.advance()) {
        shared.q_ring.wait_until_full(at);
        const auto& work = shared.work[at.stage];
        mbarrier_wait(shared.written[at.stage], at.parity);
        is_last = work.is_last;
        if (work.has_last) store_rows(shared.q[at.stage], {map_o, work.head}, work.row);
        shared.q_ring.release(at, 0);
    }
}

// A consumer's results on their way out through a stage of a ring, which is released when TMA has read them:
// by each warp as often as the Consumers that have not used it would have, too.
template <int Consumers>
struct StageOfResults {
    Mbarrier* empty = nullptr;

    // Waits for the stage. Each warp writes the 16 rows of its accumulators and stores them as rows of a
    // matrix from `row` on.
    template <class Element, class Stage, int Stages, int Registers>
    __device__ void store(Stage (&stage)[Stages], RingBarriers<Stages>& ring, const RingPosition<Stages>& at,
                          const float (&value)[1][Registers], const MatrixOfMap& to, int row, int thread) {
        constexpr int panel_bytes = 64 * line_bytes;
        static_assert(Consumers <= Stages && sizeof(Stage) >= Registers / 32 * panel_bytes, "results fit");
        ring.wait_until_full(at);
        const auto through = reinterpret_cast<unsigned char*>(&stage[at.stage]);
#pragma unroll
        for (int i = 0; i < Registers / 32; ++i) {
            TmaStoreRing<Element, 64, 1>::fill(through + i * panel_bytes, value[0], 32 * i, thread);
        }
        fence_async_proxy();
        __syncwarp();
        empty = &ring.empty[at.stage];
        if (thread % 32 != 0) return;
        const int first = thread / 32 * 16;
#pragma unroll
        for (int i = 0; i < Registers / 32; ++i) {
            tma_store(to, row + first, 64 * i, through + i * panel_bytes + first * line_bytes);
        }
        commit_stores();
    }

    __device__ void release(int lane) {
        if (lane == 0 && empty != nullptr) {
            wait_for_store_reads<0>();
            for (int i = 0; i < Consumers; ++i) mbarrier_arrive(*empty);
        }
        empty = nullptr;
    }
};
