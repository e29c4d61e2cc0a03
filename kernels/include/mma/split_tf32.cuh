// An fp32 number as the sum of two that tensor cores read as TF32, sign, eight bits of exponent and ten of
// mantissa: x = high + low, up to 2^-22 |x|. The tensor cores cut the lower 13 bits of what they read. x must be
// finite, and smaller than the largest TF32 number.
//   rounded    high is x rounded to nearest, so that low is at most 2^-11 |x|, of either sign
//   cut        high is x as it stands, which the tensor cores cut: nobody has to write it. low is up to
//              2^-10 |x|
// Half a unit of TF32's last place, added to the bits and cut, rounds to nearest. cvt.rna.tf32 does the same, but
// becomes four instructions for its infinities.
#pragma once

#include "copy/vector.cuh"

constexpr unsigned tf32_mask = 0xffffe000, tf32_half_unit = 0x1000;

__device__ inline unsigned rounded_tf32(float x) { return __float_as_uint(x) + tf32_half_unit; }

// What the tensor cores make of a word.
__device__ inline float read_as_tf32(unsigned word) { return __uint_as_float(word & tf32_mask); }

// `low` is rounded as well.
__device__ inline void split_rounded(unsigned word, unsigned& high, unsigned& low) {
    const float x = __uint_as_float(word);
    high = rounded_tf32(x);
    low = rounded_tf32(x - read_as_tf32(high));
}

__device__ inline unsigned low_of_cut(unsigned word) {
    return rounded_tf32(__uint_as_float(word) - read_as_tf32(word));
}

// The low parts of `Bytes` bytes of shared memory, to the same places of `to`: the layout stays as it is.
template <int Threads, int Bytes>
__device__ inline void write_low_parts(const unsigned char (&from)[Bytes], unsigned char (&to)[Bytes],
                                       int thread) {
#pragma unroll 4
    for (int at = thread * 16; at < Bytes; at += Threads * 16) {
        auto quad = load_vector<4>(reinterpret_cast<const unsigned*>(from + at));
        for (unsigned& word : quad.value) word = low_of_cut(word);
        store_vector(reinterpret_cast<unsigned*>(to + at), quad);
    }
}
