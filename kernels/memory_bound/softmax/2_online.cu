// Tried, does not pay in bf16 with 8192 columns.
//
// output[r][c] = exp(input[r][c] - m) / S: maximum and sum in one pass, so that a row is read twice.
//
// A sum of exp(x - m) can be carried on while the maximum is not known yet (Milakov and Gimelshein's online
// normalizer): where m grows to m', what has been added up is multiplied by exp(m - m'). Two such pairs of
// maximum and sum are combined in the same way, so that threads and warps may begin anywhere. Three memory
// accesses an element in the place of four, for a second exponential.

#include "types/element.cuh"
#include "types/index.cuh"

// Where maxima begin: below every number but -inf. From -inf on, -inf - -inf would be NaN.
constexpr float Lowest = -3.4028235e38f;

// The maximum of some numbers, and the sum of exp(number - maximum).
struct Normalizer {
    float maximum = Lowest, sum = 0.0f;

    __device__ void add(const Normalizer& other) {
        const float larger = fmaxf(maximum, other.maximum);
        sum = sum * __expf(maximum - larger) + other.sum * __expf(other.maximum - larger);
        maximum = larger;
    }
    __device__ void add(float number) {
        const float larger = fmaxf(maximum, number);
        sum = sum * __expf(maximum - larger) + __expf(number - larger);
        maximum = larger;
    }
    // Adds those of the other lanes, in groups of `lanes`.
    __device__ void add_lanes(int lanes) {
        for (int apart = lanes / 2; apart > 0; apart /= 2) {
            const float theirs = __shfl_xor_sync(0xffffffffu, sum, apart);
            add(Normalizer{__shfl_xor_sync(0xffffffffu, maximum, apart), theirs});
        }
    }
};

template <class T, int Block>
__global__ void __launch_bounds__(Block)
softmax_online(const T* __restrict__ input, T* __restrict__ output, Index columns) {
    __shared__ float maxima[Block / 32], sums[Block / 32];
    const T* from = input + blockIdx.x * columns;
    T* to = output + blockIdx.x * columns;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    Normalizer row;
    for (Index c = threadIdx.x; c < columns; c += Block) row.add(to_float(from[c]));
    row.add_lanes(32);
    if (lane == 0) {
        maxima[warp] = row.maximum;
        sums[warp] = row.sum;
    }
    __syncthreads();  // those of all warps are written
    row = {maxima[lane % (Block / 32)], sums[lane % (Block / 32)]};
    row.add_lanes(Block / 32);

    const float scale = 1.0f / row.sum;
    for (Index c = threadIdx.x; c < columns; c += Block) {
        to[c] = from_float<T>(__expf(to_float(from[c]) - row.maximum) * scale);
    }
}
