// Elements of a GEMM on tensor cores: conversion to and from fp32, and neighbours of them blended into C.
// float stands for tf32: fp32 of which the tensor cores read the upper 19 bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "neighbours.cuh"

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class Element>
__device__ inline Element from_float(float value);
template <>
__device__ inline float from_float<float>(float value) { return value; }
template <>
__device__ inline __half from_float<__half>(float value) { return __float2half_rn(value); }
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }

// Elements of sixteen bytes.
template <class Element>
constexpr int per_chunk = 16 / sizeof(Element);

// c = alpha * sum + beta * c for Count neighbours. As in BLAS, beta == 0 means that c counts for nothing, NaN included.
template <int Count, class Element>
__device__ inline void blend(Neighbours<Element, Count>& c, const float (&sum)[Count], float alpha, float beta) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        const float before = beta != 0.0f ? beta * to_float(c.value[i]) : 0.0f;
        c.value[i] = from_float<Element>(alpha * sum[i] + before);
    }
}

// The same in memory, which is not read where beta == 0.
template <int Count, class Element>
__device__ inline void blend_neighbours(Element* c, const float (&sum)[Count], float alpha, float beta) {
    Neighbours<Element, Count> out{};
    if (beta != 0.0f) out = load_neighbours<Count>(c);
    blend(out, sum, alpha, beta);
    store_neighbours<Count>(c, out);
}
