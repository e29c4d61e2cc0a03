// A consumer's way through the ring: the wgmma of a tile of C, one stage after the other. One group of wgmma
// stays in flight, so that the tensor cores need not wait for the next one to start. A stage is released once
// the next one has started.
#pragma once

#include "mma/operand_tile.cuh"
#include "ptx/warpgroup.cuh"
#include "schedule/hand_over.cuh"
#include "schedule/ring.cuh"

// A warpgroup that multiplies, on its way through the stages of Memory, the block's shared memory: arrays a
// and b of operand tiles, and their ring.
template <class Memory>
struct Consumer {
    Memory& shared;
    int rank, steps;           // of the block in its cluster; of K in a tile
    int number, thread, lane;  // of the consumer in the block, of the thread in the consumer and in its warp
    int row, column;           // where its part of a tile begins
    decltype(Memory::ring.begin()) at = {};
    int next_buffer = 0;  // for results

    __device__ Consumer(Memory& shared, int rank, int steps, int number, int thread, int row, int column)
        : shared(shared),
          rank(rank),
          steps(steps),
          number(number),
          thread(thread),
          lane(thread % 32),
          row(row),
          column(column) {}
};

// Multiplies all steps of a tile, at least one, into accumulators that begin at zero: Fragments x 64 rows.
// Returns the last stage: wait for its wgmma before releasing it.
template <class Cluster, class Memory, class Signal, int Fragments, int Registers>
__device__ inline int wgmma_loop(float (&accumulator)[Fragments][Registers], Consumer<Memory>& consumer,
                                 Signal& hand_over) {
    Memory& shared = consumer.shared;
    auto& at = consumer.at;
    int held = 0;
    for (int step = 0; step < consumer.steps; ++step, at.advance()) {
        mbarrier_wait(shared.ring.full[at.stage], at.parity);
        wgmma_fence();
        wgmma_tiles(accumulator, shared.a[at.stage], shared.b[at.stage], consumer.row, consumer.column,
                    step > 0);
        wgmma_commit();
        if (step > 0) {
            wgmma_wait<1>();
            release_stage<Cluster>(shared.ring.empty[held], consumer.rank, consumer.lane);
        }
        held = at.stage;
        hand_over.after(step);
    }
    return held;
}
