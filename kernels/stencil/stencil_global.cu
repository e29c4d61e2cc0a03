// output[i] = mean(input[i .. i + K]) for i < elements - K: every thread reads its K + 1 inputs from global
// memory.
//
// The technique: none; this is the baseline (own). A warp's loads of neighbouring taps overlap in all but one
// word, and the L1 serves them. The lead of the other kernels over this one is the gain of their software
// caches.
//
// T: int or float. K: reach in elements. Block: threads per block.

#include "simt/stencil.cuh"
#include "types/index.cuh"

template <class T, int K, int Block>
__global__ void __launch_bounds__(Block)
stencil_global(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    const Index at = Index(blockIdx.x) * Block + threadIdx.x;
    if (at + K >= elements) return;
    T sum = input[at];
#pragma unroll
    for (int tap = 1; tap <= K; ++tap) sum += input[at + tap];
    output[at] = mean<K + 1>(sum);
}
