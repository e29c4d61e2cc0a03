// A bounded softmax that looks for no maximum as long as exponentials over the old one stay small. A tile
// seldom replaces the maximum of those before it. So its exponentials take the old one, as soon as scores
// are there, and are packed as they come. Their sum, which is needed anyway, says whether scores have grown
// far beyond it: then they are still there, and their maximum is found. Other tiles take no maxima and no
// shuffles. The price: weights of up to 2^7, whose rounding is relative all the same; and scores that keep
// growing, or lie beyond largest_product, are exponentiated twice.
#pragma once

#include "epilogue/bounded_softmax.cuh"

struct TrustingSoftmax : BoundedSoftmax<1, 0> {
    using BoundedSoftmax::BoundedSoftmax;
    static constexpr float largest_sum = 128.0f;  // of a thread's weights in a tile's row
    bool is_first = true;

    // Scores become weights, packed as operand A of the next wgmma. What was added up of tiles before is to
    // be multiplied by `factor`.
    template <class Element, int Registers>
    __device__ void add(float (&score)[Registers], unsigned (&p)[Registers / 8][4], float (&factor)[2]) {
        static_assert(Registers <= largest_sum, "weights of at most 2 have no larger sum");
        if (!is_first) {
            const float offset[2] = {-maximum[0] * scale, -maximum[1] * scale};
            float own[2] = {};
#pragma unroll
            for (int i = 0; i < Registers; i += 2) {
                const int row = i / 2 % 2;
                const float low = exp2_to_zero(fmaf(score[i], scale, offset[row]));
                const float high = exp2_to_zero(fmaf(score[i + 1], scale, offset[row]));
                own[row] += low;
                own[row] += high;
                p[i / 8][i / 2 % 4] = Packed<Element>::pack(low, high);
            }
            const bool is_right = own[0] <= largest_sum && own[1] <= largest_sum &&
                                  fabsf(offset[0]) <= largest_product && fabsf(offset[1]) <= largest_product;
            if (!__any_sync(0xffffffffu, !is_right)) {
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                    sum[row] += own[row];
                    factor[row] = 1.0f;
                }
                return;
            }
        }
        is_first = false;
        BoundedSoftmax::add(score, factor);
        pack_fragments<Element>(score, p);
    }
};
