// Maximum and sum of exponentials of a row in one pass (milakov-softmax): where the maximum grows, what has
// been added up is multiplied by exp(old maximum - new maximum). Parts of a row are combined in the same way.
#pragma once

#include "ptx/exp2.cuh"
#include "types/element.cuh"
#include "types/vector.cuh"

// The maximum of some numbers, and the sum of exp(number - maximum).
struct Normalizer {
    float maximum, sum;

    // Of no number. The maximum is below every one but -inf: from -inf on, -inf - -inf would be NaN.
    __device__ static Normalizer of_none() { return {-3.4028235e38f, 0.0f}; }

    __device__ void add(const Normalizer& other) {
        const float larger = fmaxf(maximum, other.maximum);
        sum = sum * exp_to_zero(maximum - larger) + other.sum * exp_to_zero(other.maximum - larger);
        maximum = larger;
    }

    // Adds numbers side by side, for one exponential more than there are numbers. By value, so that the
    // vector is loaded as a whole: by reference those of bf16 came from shared memory one by one.
    template <class T, int Count>
    __device__ void add(Vector<T, Count> numbers) {
        float larger = maximum;
#pragma unroll
        for (int i = 0; i < Count; ++i) larger = fmaxf(larger, to_float(numbers.value[i]));
        sum *= exp_to_zero(maximum - larger);
#pragma unroll
        for (int i = 0; i < Count; ++i) sum += exp_to_zero(to_float(numbers.value[i]) - larger);
        maximum = larger;
    }
};

// That of all lanes of a warp, in each lane.
__device__ inline Normalizer over_warp(Normalizer own) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        const float maximum = __shfl_xor_sync(0xffffffffu, own.maximum, apart);
        own.add(Normalizer{maximum, __shfl_xor_sync(0xffffffffu, own.sum, apart)});
    }
    return own;
}

// That of all threads of a block, in each thread. Called once.
__device__ inline Normalizer over_block(Normalizer own) {
    __shared__ Normalizer of_warp[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    own = over_warp(own);
    if (lane == 0) of_warp[warp] = own;
    __syncthreads();  // those of all warps are written
    return over_warp(lane < blockDim.x / 32 ? of_warp[lane] : Normalizer::of_none());
}
