// Consumers that take turns: each begins a turn when the one before it has ended its own. In its turn a
// consumer starts wgmma. So they enter the queue of the tensor cores together.
#pragma once

#include "ptx/warpgroup.cuh"

template <int Consumers>
struct Turns {
    static constexpr int barrier = 3;  // the first of named barriers, one for each consumer
    int consumer;  // 0 goes first
    bool first = true;

    __device__ void begin() {
        if (consumer > 0 || !first) warpgroup_barrier<2>(barrier + consumer);
        first = false;
    }
    // All consumers have their last turn in the same round.
    __device__ void end(bool last = false) const {
        const bool is_last = consumer == Consumers - 1;
        if (!is_last || !last) warpgroup_arrive<2>(barrier + (is_last ? 0 : consumer + 1));
    }
    // A turn in which the consumer starts nothing. Not for the last consumer.
    __device__ void pass() {
        begin();
        end();
    }
};
