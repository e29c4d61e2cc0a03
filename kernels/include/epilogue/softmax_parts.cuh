// Attention of rows whose keys two blocks share (stream-K): one leaves its output, which nothing has divided,
// with maxima and sums; the other scales both to the larger maximum and adds them. They go through global
// memory as other partial sums do, from a warp to the one of its number.
#pragma once

#include "epilogue/online_softmax.cuh"
#include "epilogue/partial_sums.cuh"

// One of many parts: each has Registers floats of 32 lanes in `parts`, their maxima and sums of two rows, and
// a flag. All lanes of a warp.
template <int Registers>
__device__ inline void leave_part(const OnlineSoftmax& softmax, const float (&output)[Registers],
                                  float* parts, unsigned* flags, int part, int lane) {
    float own[Registers + 4];
#pragma unroll
    for (int i = 0; i < Registers; ++i) own[i] = output[i];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        own[Registers + row] = softmax.maximum[row];
        own[Registers + 2 + row] = softmax.sum[row];
    }
    parts += part * 32 * (Registers + 4);
    leave_sums<32>(own, parts, flags + part, lane, [] { __syncwarp(); });
}

// What brings own outputs and another part's to the larger maximum, of each of two rows.
struct PartFactors {
    float own[2], other[2];
};

// Takes another part's maxima and sums, two of each, into `softmax`.
__device__ inline PartFactors join(OnlineSoftmax& softmax, const float* maxima, const float* sums) {
    PartFactors factors;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const float maximum = softmax.maximum[row], larger = fmaxf(maximum, maxima[row]);
        factors.own[row] = exp2_to_zero((maximum - larger) * softmax.scale);
        factors.other[row] = exp2_to_zero((maxima[row] - larger) * softmax.scale);
        softmax.maximum[row] = larger;
        softmax.sum[row] = softmax.sum[row] * factors.own[row] + sums[row] * factors.other[row];
    }
    return factors;
}

template <int Registers>
__device__ inline void add_part(OnlineSoftmax& softmax, float (&output)[Registers], const float* parts,
                                unsigned* flags, int part, int lane) {
    float other[Registers + 4];
    parts += part * 32 * (Registers + 4);
    take_sums<32, false>(other, parts, flags + part, lane, [] { __syncwarp(); });
    const PartFactors factors = join(softmax, other + Registers, other + Registers + 2);
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
        output[i] = output[i] * factors.own[i / 2 % 2] + other[i] * factors.other[i / 2 % 2];
    }
}

// The same, four outputs at a time: where an output takes so many registers that another one finds no room.
template <int Registers>
__device__ inline void add_part_by_fours(OnlineSoftmax& softmax, float (&output)[Registers],
                                         const float* parts, unsigned* flags, int part, int lane) {
    parts += part * 32 * (Registers + 4) + lane * 4;
    if (lane == 0) take_flag(flags + part);
    __syncwarp();
    const auto other = load_vector<4>(parts + Registers / 4 * 128);
    const PartFactors factors = join(softmax, other.value, other.value + 2);
#pragma unroll
    for (int i = 0; i < Registers; i += 4) {
        const auto four = load_vector<4>(parts + i / 4 * 128);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            output[i + w] = output[i + w] * factors.own[w / 2] + four.value[w] * factors.other[w / 2];
        }
        if (i % 32 == 28) __syncwarp();  // The compiler moves no loads ahead of it.
    }
}
