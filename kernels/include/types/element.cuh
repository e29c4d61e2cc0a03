// Types of a GEMM's elements on tensor cores, and their conversion to and from fp32. For mma.sync and WMMA,
// float stands for tf32: fp32 of which the tensor cores read the upper 19 bits. For wgmma, Tf32 tells it from
// an fp32 C.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Operands of wgmma that CUDA has no fast header for.
struct Tf32 {
    float value;
};
struct E4m3 {
    unsigned char bits;
};

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

// The type of C that belongs to a type of operands of wgmma.
template <class Element>
struct TypeOfC {
    using Type = Element;
};
template <>
struct TypeOfC<Tf32> {
    using Type = float;
};
template <>
struct TypeOfC<E4m3> {
    using Type = __nv_bfloat16;
};
template <class Element>
using ElementOfC = typename TypeOfC<Element>::Type;
