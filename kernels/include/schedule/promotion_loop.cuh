// A consumer's way through the ring with promotion (mma/promotion.cuh): the wgmma of an interval of stages,
// one part of the consumer's tile after the other, and then their partial sums to the accumulators.
#pragma once

#include "mma/operand_tile.cuh"
#include "mma/promotion.cuh"
#include "schedule/ring.cuh"
#include "schedule/wgmma_loop.cuh"
#include "types/index.cuh"

// The parts of a consumer: its columns in Split parts, of which Partials have partial sums in registers at
// the same time; they are promoted every Interval stages of the ring. With two partial sums the next part is
// under way while one is added, until a consumer waits for all after Chain intervals.
template <int Interval, int Split, int Partials, int Chain>
struct Promotion {
    static constexpr int interval = Interval, split = Split, partials = Partials, chain = Chain;
};

// Partial sums that are added as they are. block_scales.cuh has scales in their place.
struct Unscaled {
    __device__ Unscaled read(int) const { return {}; }
};

template <int Fragments, int Registers, int Partial>
__device__ inline void promote(float (&accumulator)[Fragments][Registers], int part,
                               float (&partial)[1][Partial], Unscaled) {
    promote(accumulator, part, partial);
}

// Adds the product of all steps of a tile to the accumulators. Hands over by intervals: when the first part
// of one is multiplied.
template <class Cluster, class Promotion, class Memory, class Signal, int Fragments, int Registers,
          class Scales = Unscaled>
__device__ inline void promotion_loop(float (&accumulator)[Fragments][Registers], Consumer<Memory>& consumer,
                                      Signal& hand_over, Scales scales = {}) {
    using Position = decltype(consumer.at);
    auto& a = consumer.shared.a;
    auto& b = consumer.shared.b;
    auto& ring = consumer.shared.ring;
    auto& at = consumer.at;
    const int steps = consumer.steps, row = consumer.row, rank = consumer.rank, lane = consumer.lane;
    constexpr int interval = Promotion::interval, chain = Promotion::chain, partials = Promotion::partials;
    constexpr int split = Promotion::split, parts = Fragments * split, registers = Registers / split;
    float partial[partials][1][registers];

    // Starts the wgmma of a part for `count` stages from `from` on, with partial sums that begin at zero.
    auto multiply = [&](int part, int sum, Position from, int count) {
        for (int i = 0; i < count; ++i, from.advance()) {
            if (part == 0) mbarrier_wait(ring.full[from.stage], from.parity);
            wgmma_fence();
            wgmma_tiles(partial[sum], a[from.stage], b[from.stage], row + part / split * 64,
                        part % split * registers * 2, i > 0);
        }
        wgmma_commit();
    };
    auto release = [&](Position from, int count) {
        for (int i = 0; i < count; ++i, from.advance()) {
            release_stage<Cluster>(ring.empty[from.stage], rank, lane);
        }
    };
    // `intervals` of `count` stages each, number `first` and on. At the end no wgmma is under way: if one
    // were from one round of a loop to the next, the compiler would serialise all (C7514).
    // Scales of a step are read once, when its first part is under way: wgmma need the bandwidth of shared
    // memory.
    auto promote_intervals = [&](int first, int intervals, int count) {
        multiply(0, 0, at, count);
        auto step_scales = scales.read(at.stage), next_scales = step_scales;
#pragma unroll
        for (int i = 0; i < intervals * parts; ++i) {
            const int part = i % parts;
            const bool last = part == parts - 1, more = i + 1 < intervals * parts;
            Position next = at;  // of the next part
            if (last) next.advance(count);
            if (partials == 2 && more) {
                multiply((i + 1) % parts, (i + 1) % 2, next, count);
                if (last) next_scales = scales.read(next.stage);
                wgmma_wait<1>();
            } else {
                wgmma_wait<0>();
            }
            if (part == 0) hand_over.after(first + i / parts);
            if (last) release(at, count);
            promote(accumulator, part, partial[i % partials], step_scales);
            if (partials == 1 && more) {
                multiply((i + 1) % parts, 0, next, count);
                if (last) next_scales = scales.read(next.stage);
            }
            if (last) step_scales = next_scales;
            at = next;
        }
    };

    int step = 0;
    if constexpr (chain > 1) {
        for (; step + chain <= steps; step += chain) promote_intervals(step, chain, 1);
    }
    for (; step < steps; step += interval) {
        promote_intervals(step / interval, 1, interval == 1 ? 1 : const_min(interval, steps - step));
    }
}
