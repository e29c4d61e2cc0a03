// Two accumulators side by side in a row, packed: rounded from fp32 to the type of C, and moved by one
// instruction.
#pragma once

#include "types/element.cuh"

template <class Value>
struct Packed;

template <>
struct Packed<__nv_bfloat16> {
    using Type = unsigned;
    __device__ static unsigned pack(float low, float high) {
        const __nv_bfloat162 packed = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<const unsigned*>(&packed);
    }
    __device__ static float2 unpack(unsigned packed) {
        return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&packed));
    }
};

template <>
struct Packed<__half> {
    using Type = unsigned;
    __device__ static unsigned pack(float low, float high) {
        const __half2 packed = __floats2half2_rn(low, high);
        return *reinterpret_cast<const unsigned*>(&packed);
    }
    __device__ static float2 unpack(unsigned packed) {
        return __half22float2(*reinterpret_cast<const __half2*>(&packed));
    }
};

template <>
struct Packed<float> {
    using Type = float2;
    __device__ static float2 pack(float low, float high) { return make_float2(low, high); }
    __device__ static float2 unpack(float2 packed) { return packed; }
};

template <class Value>
__device__ inline typename Packed<Value>::Type* packed_at(Value* low) {
    return reinterpret_cast<typename Packed<Value>::Type*>(low);
}
