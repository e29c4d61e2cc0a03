// output[i] = mean(input[i .. i + 2 Radius]) for i < elements - 2 Radius: every thread reads its 2 Radius + 1
// inputs from global memory.
//
// The technique: none; this is the baseline (own). A warp's loads of neighbouring taps overlap in all but one
// word, and the L1 serves them. The lead of the other kernels over this one is the gain of their software
// caches.
//
// T: int or float. Radius: in elements, at most 32. Block: threads per block.

#include "simt/stencil.cuh"
#include "types/index.cuh"

template <class T, int Radius, int Block>
__global__ void __launch_bounds__(Block)
stencil_global(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    constexpr int halo = 2 * Radius;
    const Index at = Index(blockIdx.x) * Block + threadIdx.x;
    if (at + halo >= elements) return;
    T sum = input[at];
#pragma unroll
    for (int tap = 1; tap <= halo; ++tap) sum += input[at + tap];
    output[at] = mean<halo + 1>(sum);
}
