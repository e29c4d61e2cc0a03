// Two consumers that take turns: each begins a turn when the other has ended the one before. What is between
// begin and end starts wgmma; those of a consumer are then in the queue of the tensor cores as a whole.
#pragma once

#include "ptx/warpgroup.cuh"

struct Turns {
    static constexpr int barrier = 3;  // named barriers 3 and 4: 1 and 2 are the consumers' own
    int consumer;  // 0 goes first
    int last;      // number of the last turn of each; the first is 0

    __device__ void begin(int turn) const {
        if (consumer == 1 || turn > 0) warpgroup_barrier<2>(barrier + consumer);
    }
    __device__ void end(int turn) const {
        if (consumer == 0 || turn < last) warpgroup_arrive<2>(barrier + 1 - consumer);
    }
};
