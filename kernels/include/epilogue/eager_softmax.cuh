// A bounded softmax that does not wait for a tile's maximum. A tile seldom replaces the maximum of those
// before it: so some scores are exponentiated with the old one while the new one is found, and special
// functions do not stand idle meanwhile. Where the maximum is replaced, the scores are still there, and all
// are exponentiated again. The price: registers for the early exponentials.
#pragma once

#include "epilogue/bounded_softmax.cuh"

template <int Growth>
struct EagerBoundedSoftmax : BoundedSoftmax<Growth, 0> {
    using Bounded = BoundedSoftmax<Growth, 0>;
    using Bounded::Bounded, Bounded::maximum, Bounded::scale, Bounded::sum;
    static constexpr int early_scores = 32;  // of a thread, of both rows

    template <int Registers>
    __device__ void add(float (&score)[Registers], float (&factor)[2]) {
        const float offset[2] = {-maximum[0] * scale, -maximum[1] * scale};
        float early[early_scores], early_sum[2] = {};
#pragma unroll
        for (int i = 0; i < early_scores; ++i) {
            early[i] = exp2_to_zero(fmaf(score[i], scale, offset[i / 2 % 2]));
            early_sum[i / 2 % 2] += early[i];
        }
        bool is_stale = false;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float larger = Bounded::largest(score, row);
            factor[row] = 1.0f;
            is_stale |= fmaf(larger, scale, offset[row]) > Bounded::least_growth;
            is_stale |= fabsf(offset[row]) > Bounded::largest_product;
            // Where no growth is found no exponential exceeds 2^Growth, and so their sum is no larger than
            // this: it decides nothing. But the branch now needs the sum. Otherwise the compiler computes
            // early exponentials behind the branch, when the maximum has been waited for.
            is_stale |= early_sum[row] > (1 << Growth) * early_scores;
        }
        if (__any_sync(0xffffffffu, is_stale)) {
            Bounded::add(score, factor);
            return;
        }
#pragma unroll
        for (int row = 0; row < 2; ++row) sum[row] += early_sum[row];
#pragma unroll
        for (int i = 0; i < early_scores; ++i) score[i] = early[i];
#pragma unroll
        for (int i = early_scores; i < Registers; ++i) {
            score[i] = exp2_to_zero(fmaf(score[i], scale, offset[i / 2 % 2]));
            sum[i / 2 % 2] += score[i];
        }
    }
};
