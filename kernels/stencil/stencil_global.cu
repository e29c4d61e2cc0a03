// output[i] = mean(input[i .. i + K]) for i < elements - K: every thread reads its K + 1 inputs from global memory.
//
// The technique: none. A warp's loads of neighbouring taps overlap in all but one word, and the hardware's L1 answers them
// (catalogue E1): what this kernel loses to the others is what keeping the line by hand is worth.
//
// T: int or float. K: reach in elements. Block: threads per block.

#include "index.cuh"
#include "mean.cuh"

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
