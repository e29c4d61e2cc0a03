// The softmax of rows of scores that a warpgroup gets tile by tile in its accumulators (milakov-softmax,
// flash-attention-2): where the maximum of a row grows, what was added up before is multiplied by
// exp(old maximum - new maximum).
//
// Four lanes side by side hold a row, and a thread has its part of two (wgmma.cuh). They agree on the maximum
// of each tile by two shuffles. The sum stays the thread's own until the end. exp(x / sqrt(depth)) is
// exp2(x * scale). One FFMA for score * scale - maximum * scale would be an instruction less, but it rounds
// once where the maximum was rounded twice: of scores beyond 2 * 10^10 the exponential of the maximum is
// inf. A branch to it for smaller scores ends what the compiler overlaps, one row's maximum with the other
// row's exponentials: LeanSoftmax takes it, as a rung of its own.
#pragma once

#include "epilogue/pack.cuh"
#include "ptx/exp2.cuh"
#include "ptx/wgmma.cuh"

// How many of the keys row `row` sees: all, or those up to its own.
template <bool Causal>
__device__ inline int keys_seen(int row, int keys) { return Causal ? min(row + 1, keys) : keys; }

// Scores of keys that a row does not see become -inf. Of a tile that all rows see nothing is looked at.
template <bool Causal, int Registers>
__device__ inline void mask_scores(float (&score)[Registers], int first_row, int first_key, int keys,
                                   int thread) {
    if (first_key + 2 * Registers <= keys_seen<Causal>(first_row, keys)) return;
    const int row = first_row + accumulator_row(thread, 0), key = first_key + accumulator_column(thread, 0);
    const int seen[2] = {keys_seen<Causal>(row, keys) - key, keys_seen<Causal>(row + 8, keys) - key};
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
        if (accumulator_column(0, i) >= seen[i / 2 % 2]) score[i] = __int_as_float(0xff800000);
    }
}

// Of two rows eight apart, in each thread.
struct OnlineSoftmax {
    float scale;  // log2(e) / sqrt(depth)
    // Below every score but -inf: from -inf on, -inf - -inf would be NaN.
    float maximum[2] = {-3.4028235e38f, -3.4028235e38f};
    float sum[2] = {};

    __device__ explicit OnlineSoftmax(int depth) : scale(1.4426950408889634f / sqrtf(depth)) {}

    // Replaces the scores of a tile by exp(score - maximum). What was added up of tiles before is to be
    // multiplied by `factor`, for each row.
    template <int Registers>
    __device__ void add(float (&score)[Registers], float (&factor)[2]) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float larger = score[2 * row];
#pragma unroll
            for (int i = 0; i < Registers; ++i) {
                if (i / 2 % 2 == row) larger = fmaxf(larger, score[i]);
            }
            larger = fmaxf(maximum[row], over_quad(larger, [](float a, float b) { return fmaxf(a, b); }));
            factor[row] = exp2_to_zero((maximum[row] - larger) * scale);
            maximum[row] = larger;
            sum[row] *= factor[row];
#pragma unroll
            for (int i = 0; i < Registers; ++i) {
                if (i / 2 % 2 != row) continue;
                score[i] = exp2_to_zero((score[i] - larger) * scale);
                sum[row] += score[i];
            }
        }
    }

    // Divides the rows of an output by their sums. All lanes of a warp; once.
    template <int Registers>
    __device__ void divide(float (&output)[Registers]) const {
        float inverse[2];
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            inverse[row] = 1.0f / over_quad(sum[row], [](float a, float b) { return a + b; });
        }
        rescale(output, inverse);
    }

    // Multiplies each row by its factor.
    template <int Registers>
    __device__ static void rescale(float (&output)[Registers], const float (&factor)[2]) {
#pragma unroll
        for (int i = 0; i < Registers; ++i) output[i] *= factor[i / 2 % 2];
    }

    // `own` of four lanes side by side, combined in each of them.
    template <class Combine>
    __device__ static float over_quad(float own, Combine combine) {
#pragma unroll
        for (int apart = 1; apart < 4; apart *= 2) {
            own = combine(own, __shfl_xor_sync(0xffffffffu, own, apart));
        }
        return own;
    }
};

// Accumulators of S, by now their exponentials, as operand A of the next wgmma (wgmma_registers.cuh).
template <class Element, int Registers>
__device__ inline void pack_fragments(const float (&score)[Registers], unsigned (&p)[Registers / 8][4]) {
#pragma unroll
    for (int i = 0; i < Registers; i += 2) {
        p[i / 8][i / 2 % 4] = Packed<Element>::pack(score[i], score[i + 1]);
    }
}
