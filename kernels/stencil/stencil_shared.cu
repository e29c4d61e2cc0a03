// output[i] = mean(input[i .. i + 2 Radius]) for i < elements - 2 Radius: the line passes through shared
// memory.
//
// The technique: shared memory as a cache (register-cache). A block fetches the inputs of its outputs once,
// 2 Radius words of halo included, and every thread reads 2 Radius + 1 neighbours there. With Coarsen > 1 a
// thread computes several outputs, a block apart, so that the halo is fetched once for more of them.
//
// T: int or float. Radius: in elements, at most 32. Coarsen: outputs per thread. Block: threads per block.

#include "simt/stencil.cuh"
#include "types/index.cuh"

template <class T, int Radius, int Coarsen, int Block>
__global__ void __launch_bounds__(Block)
stencil_shared(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    constexpr int outputs = Block * Coarsen, halo = 2 * Radius;
    __shared__ T line[outputs + halo];
    const int thread = threadIdx.x;
    const Index first = Index(blockIdx.x) * outputs;

#pragma unroll
    for (int i = 0; i < ceil_div(outputs + halo, Block); ++i) {
        const int at = i * Block + thread;
        if (at < outputs + halo && first + at < elements) line[at] = input[first + at];
    }
    __syncthreads();  // wait until the line is complete

#pragma unroll
    for (int i = 0; i < Coarsen; ++i) {
        const int at = i * Block + thread;
        T sum = 0;
#pragma unroll
        for (int tap = 0; tap <= halo; ++tap) sum += line[at + tap];
        if (first + at + halo < elements) output[first + at] = mean<halo + 1>(sum);
    }
}
