// Neighbouring outputs of a row, as accumulators hold them: two fp32 sums rounded to the type of C and moved at once.
#pragma once

#include "wgmma.cuh"

// The type of C that belongs to a type of operands.
template <class Element>
struct OutputOf {
    using Type = Element;
};
template <>
struct OutputOf<Tf32> {
    using Type = float;
};
template <>
struct OutputOf<E4m3> {
    using Type = __nv_bfloat16;
};
template <class Element>
using Output = typename OutputOf<Element>::Type;

template <class Value>
struct Pair;

template <>
struct Pair<__nv_bfloat16> {
    using Words = unsigned;
    __device__ static unsigned pack(float low, float high) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<const unsigned*>(&pair);
    }
    __device__ static float2 unpack(unsigned pair) {
        return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
    }
};

template <>
struct Pair<__half> {
    using Words = unsigned;
    __device__ static unsigned pack(float low, float high) {
        const __half2 pair = __floats2half2_rn(low, high);
        return *reinterpret_cast<const unsigned*>(&pair);
    }
    __device__ static float2 unpack(unsigned pair) { return __half22float2(*reinterpret_cast<const __half2*>(&pair)); }
};

template <>
struct Pair<float> {
    using Words = float2;
    __device__ static float2 pack(float low, float high) { return make_float2(low, high); }
    __device__ static float2 unpack(float2 pair) { return pair; }
};

template <class Value>
__device__ inline typename Pair<Value>::Words* pair_at(Value* low) {
    return reinterpret_cast<typename Pair<Value>::Words*>(low);
}
