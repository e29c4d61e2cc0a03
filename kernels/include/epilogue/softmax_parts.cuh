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

template <int Registers>
__device__ inline void add_part(OnlineSoftmax& softmax, float (&output)[Registers], const float* parts,
                                unsigned* flags, int part, int lane) {
    float other[Registers + 4], own_factor[2], factor[2];
    parts += part * 32 * (Registers + 4);
    take_sums<32, false>(other, parts, flags + part, lane, [] { __syncwarp(); });
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const float maximum = softmax.maximum[row], larger = fmaxf(maximum, other[Registers + row]);
        own_factor[row] = exp2_to_zero((maximum - larger) * softmax.scale);
        factor[row] = exp2_to_zero((other[Registers + row] - larger) * softmax.scale);
        softmax.maximum[row] = larger;
        softmax.sum[row] = softmax.sum[row] * own_factor[row] + other[Registers + 2 + row] * factor[row];
    }
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
        output[i] = output[i] * own_factor[i / 2 % 2] + other[i] * factor[i / 2 % 2];
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
    float own_factor[2], factor[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const float maximum = softmax.maximum[row], larger = fmaxf(maximum, other.value[row]);
        own_factor[row] = exp2_to_zero((maximum - larger) * softmax.scale);
        factor[row] = exp2_to_zero((other.value[row] - larger) * softmax.scale);
        softmax.maximum[row] = larger;
        softmax.sum[row] = softmax.sum[row] * own_factor[row] + other.value[2 + row] * factor[row];
    }
#pragma unroll
    for (int i = 0; i < Registers; i += 4) {
        const auto four = load_vector<4>(parts + i / 4 * 128);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            output[i + w] = output[i + w] * own_factor[w / 2] + four.value[w] * factor[w / 2];
        }
        if (i % 32 == 28) __syncwarp();  // The compiler moves no loads ahead of it.
    }
}
