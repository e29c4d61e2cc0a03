// The tensor cores' own instruction: a warp multiplies a 16 x Depth matrix by a Depth x 8 one, Depth being 32
// bytes of elements (PTX ISA, mma.m16n8k16 and mma.m16n8k8). Lane l holds of
//   A    rows l / 4 and l / 4 + 8 (words 0 and 1; words 2 and 3 are sixteen bytes further along the row),
//   B    column l / 4, the rows where A's lane has its columns (word 0, and word 1 half the depth further
//        down),
//   C    row l / 4, columns 2 * (l % 4) and the next (values 0 and 1), and row l / 4 + 8 (values 2 and 3).
// The order in which the depth is summed up is free as long as A and B agree on it. tf32 operands are not
// rounded (cvt.rna.tf32): mma reads the upper 19 bits of a word, and the lower bits of this project's tf32
// inputs are zero.
#pragma once

#include "types/element.cuh"

// A lane's accumulators of 16 x 8 elements of C.
template <class Accumulator>
struct AccumulatorFragment;

template <>
struct AccumulatorFragment<float> {
    float word[4] = {};
    __device__ float value(int i) const { return word[i]; }
};

template <>
struct AccumulatorFragment<__half> {
    unsigned word[2] = {};  // two values each
    __device__ float value(int i) const {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(word[i / 2] >> (i % 2 * 16))));
    }
};

template <class Element, class Accumulator>
struct Mma;

template <>
struct Mma<__half, float> {
    __device__ static void mma(AccumulatorFragment<float>& c, const unsigned (&a)[4], unsigned b0,
                               unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c.word[0]), "+f"(c.word[1]), "+f"(c.word[2]), "+f"(c.word[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

template <>
struct Mma<__nv_bfloat16, float> {
    __device__ static void mma(AccumulatorFragment<float>& c, const unsigned (&a)[4], unsigned b0,
                               unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c.word[0]), "+f"(c.word[1]), "+f"(c.word[2]), "+f"(c.word[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

template <>
struct Mma<float, float> {
    __device__ static void mma(AccumulatorFragment<float>& c, const unsigned (&a)[4], unsigned b0,
                               unsigned b1) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c.word[0]), "+f"(c.word[1]), "+f"(c.word[2]), "+f"(c.word[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

template <>
struct Mma<__half, __half> {
    __device__ static void mma(AccumulatorFragment<__half>& c, const unsigned (&a)[4], unsigned b0,
                               unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
            "{%0, %1};"
            : "+r"(c.word[0]), "+r"(c.word[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
