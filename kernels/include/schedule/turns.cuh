// Consumers that take turns: each begins a turn when the one before it has ended its own. What is between
// begin and end starts wgmma; those of a consumer are then in the queue of the tensor cores as a whole.
#pragma once

#include "ptx/warpgroup.cuh"

template <int Consumers>
struct Turns {
    static constexpr int barrier = 3;  // named barriers from 3 on: 1 and 2 are the consumers' own
    int consumer;  // 0 goes first
    int last;      // number of the last turn of each; the first is 0

    __device__ void begin(int turn) const {
        if (consumer > 0 || turn > 0) warpgroup_barrier<2>(barrier + consumer);
    }
    __device__ void end(int turn) const {
        const bool is_last = consumer == Consumers - 1;
        if (!is_last || turn < last) warpgroup_arrive<2>(barrier + (is_last ? 0 : consumer + 1));
    }
};
