// OnlineSoftmax in fewer instructions. The exponential of the maximum is 2^Shift, and none exceeds
// 2^(Growth + Shift).
//   One FFMA instead of a subtraction and a product for each score. It subtracts a rounded maximum * scale:
//   the same error for all scores that use this maximum. As long as that product is not beyond 256, an
//   exponent is off by 2^-17 at most, by 2^-16 with a shift. For larger ones there is the subtraction.
//   A maximum is replaced only if that shrinks the exponentials by more than 2^Growth (flash-attention-4, by
//   more than 2^8). Otherwise the old one stays. So outputs are seldom scaled down. The larger the weights
//   may get, the more is lost where one key outweighs all others and the exact weight would be 1.
#pragma once

#include "epilogue/online_softmax.cuh"

template <int Growth, int Shift>
struct BoundedSoftmax : OnlineSoftmax {
    using OnlineSoftmax::OnlineSoftmax;
    static constexpr float least_growth = Growth, largest_product = 256.0f;  // of exponents of two

    template <int Registers>
    __device__ void add(float (&score)[Registers], float (&factor)[2]) {
        bool is_large = false;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float larger = largest(score, row);
            const float growth = (larger - maximum[row]) * scale;
            factor[row] = 1.0f;
            if (growth > least_growth) {
                factor[row] = exp2_to_zero(-growth);
                maximum[row] = larger;
            }
            sum[row] *= factor[row];
            is_large = is_large || fabsf(maximum[row] * scale) > largest_product;
        }
        if (__any_sync(0xffffffffu, is_large)) {
            exponentiate(score, [&](float x, float most) { return shifted((x - most) * scale); });
        } else {
            exponentiate(score, [&](float x, float most) { return fmaf(x, scale, shifted(-most * scale)); });
        }
    }

    // Of a row: the maximum so far, or a larger score.
    template <int Registers>
    __device__ float largest(const float (&score)[Registers], int row) const {
        float larger = maximum[row];
#pragma unroll
        for (int i = 0; i < Registers; ++i) {
            if (i / 2 % 2 == row) larger = fmaxf(larger, score[i]);
        }
        return over_quad(larger, [](float a, float b) { return fmaxf(a, b); });
    }

    __device__ static float shifted(float x) { return Shift == 0 ? x : x + Shift; }

    // above(score, maximum): the exponent of two, Growth + Shift at most.
    template <int Registers, class Above>
    __device__ void exponentiate(float (&score)[Registers], Above above) {
#pragma unroll
        for (int i = 0; i < Registers; ++i) {
            score[i] = exp2_to_zero(above(score[i], maximum[i / 2 % 2]));
            sum[i / 2 % 2] += score[i];
        }
    }

    template <int Registers>
    __device__ static void rescale(float (&output)[Registers], const float (&factor)[2]) {
        const bool shrinks = factor[0] != 1.0f || factor[1] != 1.0f;
        if (__any_sync(0xffffffffu, shrinks)) OnlineSoftmax::rescale(output, factor);
    }
};
