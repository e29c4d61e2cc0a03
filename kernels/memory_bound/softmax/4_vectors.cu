// output[r][c] = exp(input[r][c] - m) / S: accesses of 16 bytes, and a warp for a short row.
//
// A quarter of the instructions (an eighth in bf16) asks for the same bytes: Items numbers of a thread are
// 8 vectors of fp32 or 4 of bf16. A warp takes a row of up to 32 x Items columns by itself, and a block then
// has a row for each of its warps: no shared memory, no barrier, and no warp waits for another one. Longer
// rows take a block, as before.

#include "types/element.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// Where maxima begin, and what stands behind the end of a row: below every number but -inf. From -inf on,
// -inf - -inf would be NaN.
constexpr float Lowest = -3.4028235e38f;

// Combines one number of each thread of a row; `nothing` changes no number. All of them get the result.
template <class Combine>
__device__ float over_row(float value, float nothing, bool by_warp, Combine combine) {
    __shared__ float of_warp[32];  // each Combine has its own
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
    }
    if (by_warp) return value;
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
__global__ void __launch_bounds__(1024)
softmax_vectors(const T* __restrict__ input, T* __restrict__ output, Index rows, Index columns) {
    constexpr int width = 16 / sizeof(T);  // elements of a vector
    const bool by_warp = columns <= 32 * Items;
    const int threads = by_warp ? 32 : blockDim.x, thread = threadIdx.x % threads;
    const Index row = by_warp ? Index(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32 : blockIdx.x;
    if (row >= rows) return;  // whole warps, and only where rows are theirs
    const T* from = input + row * columns;
    T* to = output + row * columns;
    const int last = columns - width;  // where the last vector begins

    // Behind the end of the row its last vector once more: loads under a condition waited for each other.
    Vector<T, width> loaded[Items / width];
#pragma unroll
    for (int i = 0; i < Items; i += width) {
        loaded[i / width] = load_vector<width>(from + min(width * thread + i * threads, last));
    }
    float held[Items];
#pragma unroll
    for (int i = 0; i < Items; ++i) {
        const bool inside = width * thread + i / width * width * threads <= last;
        held[i] = inside ? to_float(loaded[i / width].value[i % width]) : Lowest;
    }

    float maximum = Lowest;
#pragma unroll
    for (int i = 0; i < Items; ++i) maximum = fmaxf(maximum, held[i]);
    maximum = over_row(maximum, Lowest, by_warp, [](float a, float b) { return fmaxf(a, b); });

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < Items; ++i) {
        held[i] = __expf(held[i] - maximum);  // 0 behind the end of the row
        sum += held[i];
    }
    const float scale = 1.0f / over_row(sum, 0.0f, by_warp, [](float a, float b) { return a + b; });
#pragma unroll
    for (int i = 0; i < Items; i += width) {
        const int c = width * thread + i * threads;
        Vector<T, width> made;
#pragma unroll
        for (int j = 0; j < width; ++j) made.value[j] = from_float<T>(held[i + j] * scale);
        if (c <= last) store_vector<width>(to + c, made);
    }
}
