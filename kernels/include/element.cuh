// 16-bit floating-point elements: conversion to and from fp32, and sixteen bytes of them moved by one instruction.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class Element>
__device__ inline Element from_float(float value);
template <>
__device__ inline __half from_float<__half>(float value) { return __float2half_rn(value); }
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }

template <class Element>
struct alignas(16) Eight {
    Element value[8];
};

template <class Element>
__device__ inline Eight<Element> load_eight(const Element* from) {
    return *reinterpret_cast<const Eight<Element>*>(from);
}

template <class Element>
__device__ inline void store_eight(Element* to, const Eight<Element>& eight) {
    *reinterpret_cast<Eight<Element>*>(to) = eight;
}
