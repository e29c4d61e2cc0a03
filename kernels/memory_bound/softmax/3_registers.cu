// Tried, does not pay in bf16.
//
// output[r][c] = exp(input[r][c] - m) / S: the row stays in registers, so that it is read once.
//
// A thread holds Items numbers of the row, and the block has as many threads as the row takes: up to 512
// times Items columns. All loads are under way before the first one is waited for. The maximum comes first
// again, then the exponentials take the place of the numbers: one for each. What is left of the memory
// traffic is what the problem needs.

#include "types/element.cuh"
#include "types/index.cuh"

// Where maxima begin, and what stands behind the end of a row: below every number but -inf. From -inf on,
// -inf - -inf would be NaN.
constexpr float Lowest = -3.4028235e38f;

// Combines one number of each thread; `nothing` changes no number. All threads get the result.
template <class Combine>
__device__ float over_block(float value, float nothing, Combine combine) {
    __shared__ float of_warp[32];  // each Combine has its own
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
    }
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();  // the numbers of all warps are written
    value = lane < warps ? of_warp[lane] : nothing;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
    }
    return value;
}

template <class T, int Items>
__global__ void __launch_bounds__(512)
softmax_registers(const T* __restrict__ input, T* __restrict__ output, Index columns) {
    const Index first = blockIdx.x * columns;
    const int thread = threadIdx.x, threads = blockDim.x;
    float held[Items];
#pragma unroll
    for (int i = 0; i < Items; ++i) {
        const int c = thread + i * threads;
        held[i] = c < columns ? to_float(input[first + c]) : Lowest;
    }

    float maximum = Lowest;
#pragma unroll
    for (int i = 0; i < Items; ++i) maximum = fmaxf(maximum, held[i]);
    maximum = over_block(maximum, Lowest, [](float a, float b) { return fmaxf(a, b); });

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Items; ++i) {
        held[i] = __expf(held[i] - maximum);  // 0 behind the end of the row
        sum += held[i];
    }
    const float scale = 1.0f / over_block(sum, 0.0f, [](float a, float b) { return a + b; });
#pragma unroll
    for (int i = 0; i < Items; ++i) {
        const int c = thread + i * threads;
        if (c < columns) output[first + c] = from_float<T>(held[i] * scale);
    }
}
