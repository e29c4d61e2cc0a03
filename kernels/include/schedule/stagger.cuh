// Consumers some steps of K apart, so that one multiplies while the other stores: each runs Steps steps ahead
// of the next in the first tile, and later tiles keep the distance.
#pragma once

#include "ptx/warpgroup.cuh"
#include "types/index.cuh"

// Made by a consumer before its first tile, with the steps of a tile, or 0 where it has no tile: all but the
// first wait here for the one before. Call it after each step.
template <int Steps, int Consumers>
struct Stagger {
    static constexpr int first_barrier = Consumers + 1;  // a warpgroup's own barrier has its number
    int consumer, last_ahead;  // the step after which the next consumer may begin

    __device__ Stagger(int consumer, int steps)
        : consumer(consumer),
          last_ahead(Steps > 0 && consumer + 1 < Consumers ? const_min(Steps, steps) - 1 : -1) {
        if (Steps > 0 && consumer > 0 && steps > 0) warpgroup_barrier<2>(first_barrier + consumer);
    }

    __device__ void operator()(int step) {
        if (Steps > 0 && step == last_ahead) {
            warpgroup_arrive<2>(first_barrier + consumer + 1);
            last_ahead = -1;
        }
    }
};
