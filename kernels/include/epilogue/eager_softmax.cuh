// A bounded softmax that does not wait for a tile's maximum. A tile seldom replaces the maximum of those
// before it: so some scores are exponentiated with the old one while the new one is found, and special
// functions do not stand idle meanwhile. Where the maximum is replaced, the scores are still there, and all
// are exponentiated again. The price: registers for the early exponentials.
#pragma once

#include "epilogue/bounded_softmax.cuh"

// Early: of a thread's scores, of both rows.
template <int Early>
struct EagerSoftmax : BoundedSoftmax<1, 0> {
    using BoundedSoftmax::BoundedSoftmax;

    template <int Registers>
    __device__ void add(float (&score)[Registers], float (&factor)[2]) {
        const float offset[2] = {-maximum[0] * scale, -maximum[1] * scale};
        float early[Early], early_sum[2] = {};
#pragma unroll
        for (int i = 0; i < Early; ++i) {
            early[i] = exp2_to_zero(fmaf(score[i], scale, offset[i / 2 % 2]));
            early_sum[i / 2 % 2] += early[i];
        }
        bool is_stale = false;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float larger = largest(score, row);
            factor[row] = 1.0f;
            is_stale |= fmaf(larger, scale, offset[row]) > least_growth;
            is_stale |= fabsf(offset[row]) > largest_product;
            // Where no growth is found no exponential exceeds 2, and so their sum is no larger than
            // this: it decides nothing. But the branch now needs the sum. Otherwise the compiler computes
            // early exponentials behind the branch, when the maximum has been waited for.
            is_stale |= early_sum[row] > 2.0f * Early;
        }
        if (__any_sync(0xffffffffu, is_stale)) {
            BoundedSoftmax::add(score, factor);
            return;
        }
#pragma unroll
        for (int row = 0; row < 2; ++row) sum[row] += early_sum[row];
#pragma unroll
        for (int i = 0; i < Early; ++i) score[i] = early[i];
#pragma unroll
        for (int i = Early; i < Registers; ++i) {
            score[i] = exp2_to_zero(fmaf(score[i], scale, offset[i / 2 % 2]));
            sum[i / 2 % 2] += score[i];
        }
    }
};
