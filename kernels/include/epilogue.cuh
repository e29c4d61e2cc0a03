// C = alpha * sum + beta * C. As in BLAS, beta == 0 means that C is not read: it may hold anything, NaN included.
#pragma once

#include "neighbours.cuh"

__device__ inline float blend(float sum, const float* c, float alpha, float beta) {
    return beta == 0.0f ? alpha * sum : alpha * sum + beta * *c;
}

// Width neighbouring outputs at once; `c` is aligned to them.
template <int Width>
__device__ inline void store_outputs(float* c, const float* sum, float alpha, float beta) {
    Neighbours<float, Width> out{};
    if (beta != 0.0f) out = load_neighbours<Width>(c);
#pragma unroll
    for (int w = 0; w < Width; ++w) out.value[w] = alpha * sum[w] + beta * out.value[w];
    store_neighbours(c, out);
}
