// A step of K: a thread's values of a column of A, times its values of a row of B, added to its outputs.
#pragma once

#include "types/vector.cuh"

// Row after row of the outputs.
template <int TM, int TN>
__device__ inline void add_outer_product(float (&accumulator)[TM][TN], const Vector<float, 4> (&a)[TM / 4],
                                         const Vector<float, 4> (&b)[TN / 4]) {
#pragma unroll
    for (int i = 0; i < TM * TN; ++i) {
        const int y = i / TN, x = i % TN;
        accumulator[y][x] += a[y / 4].value[y % 4] * b[x / 4].value[x % 4];
    }
}

// Down a column, up the next: each FFMA takes a word of A or B from the one before it.
template <int TM, int TN>
__device__ inline void add_outer_product_in_a_snake(float (&accumulator)[TM][TN],
                                                    const Vector<float, 4> (&a)[TM / 4],
                                                    const Vector<float, 4> (&b)[TN / 4]) {
#pragma unroll
    for (int i = 0; i < TM * TN; ++i) {
        const int x = i / TM, y = x % 2 == 0 ? i % TM : TM - 1 - i % TM;
        accumulator[y][x] += a[y / 4].value[y % 4] * b[x / 4].value[x % 4];
    }
}
