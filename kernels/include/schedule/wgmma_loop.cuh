// A consumer's way through the ring: the wgmma of a tile of C, one stage after the other. One group of wgmma
// stays in flight, so that the tensor cores never wait for the next one to start. A stage is released once
// the next one has started.
#pragma once

#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"

// Multiplies `steps` > 0 stages of A and B, from `row` of A and `column` of B on, into Fragments x 64 rows of
// accumulators that begin at zero. Calls after_step(step) after each. Returns the last stage: wait for its
// wgmma before releasing it.
template <class Cluster, int Stages, class TileA, class TileB, int Fragments, int Registers, class AfterStep>
__device__ inline int wgmma_loop(float (&accumulator)[Fragments][Registers], const TileA (&a)[Stages],
                                 const TileB (&b)[Stages], RingBarriers<Stages>& ring,
                                 RingPosition<Stages>& at, int steps, int row, int column, int rank, int lane,
                                 AfterStep&& after_step) {
    int held = 0;
    for (int step = 0; step < steps; ++step, at.advance()) {
        mbarrier_wait(ring.full[at.stage], at.parity);
        wgmma_fence();
        wgmma_tiles(accumulator, a[at.stage], b[at.stage], row, column, step > 0);
        wgmma_commit();
        if (step > 0) {
            wgmma_wait<1>();
            release_stage<Cluster>(ring.empty[held], rank, lane);
        }
        held = at.stage;
        after_step(step);
    }
    return held;
}
