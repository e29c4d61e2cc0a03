// output[i] = mean(input[i .. i + K]) for i < elements - K: the line passes through shared memory.
//
// The technique: shared memory as a cache (register-cache). A block fetches the inputs of its outputs once, K
// words of halo included, and every thread reads K + 1 neighbours there. With Coarsen > 1 a thread computes
// several outputs, a block apart, so that the halo is fetched once for more of them.
//
// T: int or float. K: reach in elements. Coarsen: outputs per thread. Block: threads per block.

#include "simt/stencil.cuh"
#include "types/index.cuh"

template <class T, int K, int Coarsen, int Block>
__global__ void __launch_bounds__(Block)
stencil_shared(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    constexpr int outputs = Block * Coarsen;
    __shared__ T line[outputs + K];
    const int thread = threadIdx.x;
    const Index first = Index(blockIdx.x) * outputs;

#pragma unroll
    for (int i = 0; i < ceil_div(outputs + K, Block); ++i) {
        const int at = i * Block + thread;
        if (at < outputs + K && first + at < elements) line[at] = input[first + at];
    }
    __syncthreads();  // wait until the line is complete

#pragma unroll
    for (int i = 0; i < Coarsen; ++i) {
        const int at = i * Block + thread;
        T sum = 0;
#pragma unroll
        for (int tap = 0; tap <= K; ++tap) sum += line[at + tap];
        if (first + at + K < elements) output[first + at] = mean<K + 1>(sum);
    }
}
