// output[r][c] = exp(input[r][c] - m) / S, with m the maximum of row r and S its sum of exp(input - m): a
// block a row, which it reads three times.
//
// The maximum is subtracted because exp overflows above 88; the quotient is the same (softmax of x and of
// x - m). Nothing is kept between the passes for the maximum, for the sum and for the outputs. A row that is
// still in the L1 or L2 when it is read again costs no memory traffic, but each pass waits for its own loads,
// and there is a barrier after each.

#include "types/element.cuh"
#include "types/index.cuh"

// Where maxima begin: below every number but -inf. From -inf on, -inf - -inf would be NaN.
constexpr float Lowest = -3.4028235e38f;

// Combines one number of each thread. All threads get the result.
template <int Block, class Combine>
__device__ float over_block(float value, Combine combine) {
    __shared__ float of_warp[Block / 32];  // each Combine has its own
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
    }
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();  // the numbers of all warps are written
    value = of_warp[lane % (Block / 32)];
#pragma unroll
    for (int apart = Block / 64; apart > 0; apart /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
    }
    return value;
}

template <class T, int Block>
__global__ void __launch_bounds__(Block)
softmax_three_passes(const T* __restrict__ input, T* __restrict__ output, Index columns) {
    const T* from = input + blockIdx.x * columns;
    T* to = output + blockIdx.x * columns;

    float maximum = Lowest;
    for (Index c = threadIdx.x; c < columns; c += Block) maximum = fmaxf(maximum, to_float(from[c]));
    maximum = over_block<Block>(maximum, [](float a, float b) { return fmaxf(a, b); });

    float sum = 0.0f;
    for (Index c = threadIdx.x; c < columns; c += Block) sum += __expf(to_float(from[c]) - maximum);
    const float scale = 1.0f / over_block<Block>(sum, [](float a, float b) { return a + b; });

    for (Index c = threadIdx.x; c < columns; c += Block) {
        to[c] = from_float<T>(__expf(to_float(from[c]) - maximum) * scale);
    }
}
