// Sums over a vector, a warp (by shuffles) and a block (one number a warp through shared memory).
#pragma once

#include "types/element.cuh"
#include "types/vector.cuh"

// The sum of the numbers of a vector, in fp32 whatever they are.
template <class T, int Count>
__device__ inline float sum_of(const Vector<T, Count>& vector) {
    float sum = to_float(vector.value[0]);
#pragma unroll
    for (int i = 1; i < Count; ++i) sum += to_float(vector.value[i]);
    return sum;
}

// The sum over a warp, in its first lane.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value += __shfl_down_sync(0xffffffffu, value, apart);
    return value;
}

// The sum over a block of Threads, in its first thread. Called once, or behind a barrier.
template <int Threads>
__device__ inline float block_sum(float value) {
    __shared__ float sums[Threads / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    value = warp_sum(value);
    if (lane == 0) sums[warp] = value;
    __syncthreads();  // the sums of all warps are written
    return warp == 0 ? warp_sum(lane < Threads / 32 ? sums[lane] : 0.0f) : 0.0f;
}
