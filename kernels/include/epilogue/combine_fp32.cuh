// The epilogue of an fp32 GEMM on CUDA cores, C = alpha * accumulator + beta * C. As in BLAS, beta == 0 means
// that C is not read: it may hold anything, NaN included.
#pragma once

#include "types/vector.cuh"

__device__ inline float combine_fp32(float accumulator, const float* c, float alpha, float beta) {
    return beta == 0.0f ? alpha * accumulator : alpha * accumulator + beta * *c;
}

// A vector of Width outputs; `c` is aligned to it.
template <int Width>
__device__ inline void store_combined_fp32(float* c, const float* accumulator, float alpha, float beta) {
    Vector<float, Width> out{};
    if (beta != 0.0f) out = load_vector<Width>(c);
#pragma unroll
    for (int w = 0; w < Width; ++w) out.value[w] = alpha * accumulator[w] + beta * out.value[w];
    store_vector(c, out);
}
