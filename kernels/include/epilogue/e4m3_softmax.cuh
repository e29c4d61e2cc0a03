// Weights in e4m3, whose least number of full precision is 2^-6 and whose largest is 448: exponentials up to
// 2^8, not up to 1, are rounded to 4 bits as far as 2^-14 of the largest (flash-attention-3). Their sum is as
// much larger, and the quotient is the same.
#pragma once

#include "epilogue/bounded_softmax.cuh"

struct E4m3Softmax : BoundedSoftmax<0, 8> {
    using BoundedSoftmax::BoundedSoftmax;
};

// Two numbers rounded to e4m3 (cvt, PTX ISA 9.7.9.22).
__device__ inline unsigned short pack_e4m3(float low, float high) {
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

// Operand A of the next wgmma (wgmma_registers.cuh). pair(i): accumulators 2i and 2i + 1 of S, by now their
// exponentials, rounded. Of 32 keys a thread of four side by side, t, holds 2t and 2t + 1 of each eight. They
// become elements 4t to 4t + 3 of each sixteen: V must have its keys in that order.
template <int Steps, class Pair>
__device__ inline void pack_pairs(unsigned (&p)[Steps][4], Pair pair) {
#pragma unroll
    for (int step = 0; step < Steps; ++step) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            const int first = step * 8 + word / 2 * 4 + word % 2;
            const unsigned short low = pair(first), high = pair(first + 2);
            asm("mov.b32 %0, {%1, %2};" : "=r"(p[step][word]) : "h"(low), "h"(high));
        }
    }
}

template <int Registers>
__device__ inline void pack_fragments_e4m3(const float (&score)[Registers],
                                           unsigned (&p)[Registers / 16][4]) {
    pack_pairs(p, [&](int i) { return pack_e4m3(score[2 * i], score[2 * i + 1]); });
}

// The same in two steps, of which the first does not write to P: wgmma may still read it.
template <int Registers>
__device__ inline void round_pairs(const float (&score)[Registers], unsigned short (&pair)[Registers / 2]) {
#pragma unroll
    for (int i = 0; i < Registers; i += 2) pair[i / 2] = pack_e4m3(score[i], score[i + 1]);
}
template <int Pairs>
__device__ inline void pack_fragments_e4m3(const unsigned short (&pair)[Pairs], unsigned (&p)[Pairs / 8][4]) {
    pack_pairs(p, [&](int i) { return pair[i]; });
}

// Keeps the compiler from rounding behind the wait that follows. No instruction.
template <int Pairs>
__device__ inline void fence_registers(unsigned short (&pair)[Pairs]) {
#pragma unroll
    for (int i = 0; i < Pairs; ++i) asm volatile("" : "+h"(pair[i])::"memory");
}
