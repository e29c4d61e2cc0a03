// The loop over K of a tiled GEMM, for a block that keeps Stages tiles of both operands in shared memory.
//   Stages == 1  copy through registers, barrier, multiply, barrier.
//   Stages >= 2  a ring: while a tile is multiplied, the Stages - 1 after it are on their way (cp.async). A
//                tile takes one barrier: then the tile is complete, and the one before it may be overwritten.
// A thread commits one group of copies per tile, also for tiles after the last one (they copy nothing and
// fill with zeros). So waiting for all but the newest Stages - 2 groups means waiting for the next tile.
//   Buffers == 2  fragments of the next step are loaded before this step is multiplied, across tiles as well:
//                 the ring advances in the last step of a tile. The number of steps is even, so that buffers
//                 alternate.
//   Unrolled      steps in the body of the loop, 0 for all of a tile.
//
// Copies: the thread's share of both tiles (tile_pair.cuh; `start`, `copy`, `advance`). Warp: what is done
// with them: `load` loads the fragments of a step of the tile at an offset in shared memory into a buffer,
// `multiply` multiplies a buffer.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/shared_memory.cuh"

template <int Stages, int Buffers, int Unrolled = 0, class Copies, class Warp>
__device__ inline void staged_loop(Copies& copies, Warp& warp, char* shared, int tiles) {
    constexpr int steps = Warp::steps;
    static_assert(Buffers == 1 || (Buffers == 2 && Stages > 1 && steps % 2 == 0),
                  "buffers alternate over the steps");
    if constexpr (Stages == 1) {
#pragma unroll 1
        for (int tile = 0; tile < tiles; ++tile) {
            copies.copy(shared);
            copies.advance();
            __syncthreads();  // wait until the tiles are complete
#pragma unroll
            for (int step = 0; step < steps; ++step) {
                warp.load(0, step, 0);
                warp.multiply(0);
            }
            __syncthreads();  // wait until all threads have read them
        }
    } else {
        constexpr int ring = Stages * Copies::bytes;
        constexpr int unrolled = Unrolled == 0 ? steps : Unrolled;
        static_assert(steps % unrolled == 0 && unrolled % Buffers == 0,
                      "whole bodies of the loop, and buffers alternate in each");
        constexpr int parts = Buffers == 2 ? unrolled - 1 : unrolled;  // of a tile's copies, one part a step
        const unsigned address = shared_address(shared);
#pragma unroll
        for (int stage = 0; stage < Stages - 1; ++stage) {
            copies.start(address + stage * Copies::bytes, 0, 1);
            copies.advance();
            commit_copies();
        }
        const auto turn = [] {
            wait_for_copies<Stages - 2>();
            __syncthreads();
        };
        const auto next = [](int stage) { return stage + Copies::bytes == ring ? 0 : stage + Copies::bytes; };
        int reading = 0, writing = ring - Copies::bytes;
        if constexpr (Buffers == 2) {
            turn();
            warp.load(reading, 0, 0);
        }
#pragma unroll 1
        for (int tile = 0; tile < tiles; ++tile) {
            if constexpr (Buffers == 1) turn();
            const auto loop_body = [&](int first) {
#pragma unroll
                for (int i = 0; i < unrolled; ++i) {
                    const int ahead = Buffers - 1;
                    int step = first + i + ahead;
                    if (i + ahead == unrolled && first + unrolled == steps) {
                        turn();
                        reading = next(reading);
                        step = 0;
                    }
                    warp.load(reading, step, (i + ahead) % Buffers);
                    if (first == 0 && i < parts) copies.start(address + writing, i, parts);
                    if (first == 0 && i == parts - 1) {
                        copies.advance();
                        commit_copies();
                        writing = next(writing);
                    }
                    warp.multiply(i % Buffers);
                }
            };
            if constexpr (unrolled == steps) {
                loop_body(0);
            } else {
#pragma unroll 1
                for (int first = 0; first < steps; first += unrolled) loop_body(first);
            }
            if constexpr (Buffers == 1) reading = next(reading);
        }
    }
}

// After the loop, before the memory of the stages is used for something else: the last copies have landed,
// and all threads have read.
__device__ inline void release_stages() {
    wait_for_copies<0>();
    __syncthreads();
}
