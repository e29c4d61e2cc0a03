// How a consumer lets another one begin: it arrives at a named barrier at which the other waits.
#pragma once

#include "ptx/warpgroup.cuh"
#include "types/index.cuh"

// Arrives at `barrier` when the wgmma of step `last` of a tile have started; never where that is -1.
struct HandOver {
    int last, barrier;

    __device__ HandOver(int last, int barrier) : last(last), barrier(barrier) {}

    __device__ void after(int step) {
        if (step == last) warpgroup_arrive<2>(barrier);
    }
};

// Consumers Steps steps of K apart, so that one multiplies while the other stores: in its first tile each
// runs so far ahead of the next one, and later tiles keep the distance.
template <int Steps, int Consumers>
struct Stagger : HandOver {
    static constexpr int first_barrier = Consumers + 1;  // a warpgroup's own barrier has its number

    // Made by a consumer before its first tile, with the steps of a tile, or 0 where it has no tile: all but
    // the first wait here for the one before.
    __device__ Stagger(int consumer, int steps)
        : HandOver(Steps > 0 && consumer + 1 < Consumers ? const_min(Steps, steps) - 1 : -1,
                   first_barrier + consumer + 1) {
        if (Steps > 0 && consumer > 0 && steps > 0) warpgroup_barrier<2>(first_barrier + consumer);
    }

    __device__ void after(int step) {
        if (step == last) {
            warpgroup_arrive<2>(barrier);
            last = -1;  // once, in the first tile
        }
    }
};
