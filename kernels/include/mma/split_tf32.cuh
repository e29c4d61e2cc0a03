// An fp32 number as the sum of two that tensor cores read as TF32, which has ten bits of mantissa after the
// leading one: x = high + low, but for 2^-22 |x|. The tensor cores cut the lower 13 bits of what they read. x
// must be finite, and smaller than the largest TF32 number.
//   rounded    high is x rounded to nearest: low is at most 2^-11 |x|, of either sign
//   cut        high is x as it stands, which the tensor cores cut, and nobody has to write it: low is below
//              2^-10 |x|
// Half a unit of TF32's last place, added to the bits and cut, rounds to nearest. cvt.rna.tf32 does the same
// but becomes four instructions, for infinities.
#pragma once

#include "types/vector.cuh"

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

// The low parts of sixteen bytes, at the same place of `to`: the layout stays as it is.
__device__ inline void write_low_part(const unsigned char* from, unsigned char* to, int at) {
    auto quad = load_vector<4>(reinterpret_cast<const unsigned*>(from + at));
    for (unsigned& word : quad.value) word = low_of_cut(word);
    store_vector(reinterpret_cast<unsigned*>(to + at), quad);
}

// Of a tile in shared memory, by Threads threads. All take part in the loop, so that its length is known.
template <int Threads, int Bytes>
__device__ inline void write_low_parts(const unsigned char (&from)[Bytes], unsigned char (&to)[Bytes],
                                       int thread) {
    constexpr int at_once = Threads * 16, whole = Bytes / at_once * at_once;
#pragma unroll 4
    for (int first = 0; first < whole; first += at_once) write_low_part(from, to, first + thread * 16);
    if (whole + thread * 16 < Bytes) write_low_part(from, to, whole + thread * 16);
}
