// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K: a warp a row of B.
//
// Neighbouring lanes read neighbouring words, so that one instruction uses each sector as a whole, and there
// are 32 times as many threads. Each lane adds up a thirty-second of the row, and five shuffles add up the
// lanes. The compiler unrolls the loop, so that a lane has some eight words of its row under way: 64 KiB a
// multiprocessor of fp32, and 32 of bf16. Little's law asks for 25 (reduction/6_vector_loads.cu).

#include "epilogue/combine.cuh"
#include "types/index.cuh"

// The sum over a warp, in its first lane.
__device__ float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value += __shfl_down_sync(0xffffffffu, value, apart);
    return value;
}

template <class T, int Block>
__global__ void __launch_bounds__(Block)
gemv_warp_per_row(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
                  float alpha, float beta) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Index row = blockIdx.y;
    const int column = blockIdx.x * (Block / 32) + warp;
    if (column >= n) return;
    const T *x = a + row * k, *weights = b + Index(column) * k;

    float own = 0.0f;
    for (int i = lane; i < k; i += 32) own += to_float(weights[i]) * to_float(x[i]);
    const float sum[1] = {warp_sum(own)};
    if (lane == 0) store_combined(c + row * n + column, sum, alpha, beta);
}
