// output[0] = the sum of `elements` numbers: every thread adds its own to one number in global memory.
//
// Atomic additions to one address are carried out one after the other, by the slice of the L2 that holds
// it. The multiprocessors wait for that slice, and the memory has next to nothing to do. The order of the
// additions is whatever order they arrive in.
//
// One fp32 number for all: once it is 2^24, adding less than 1 changes nothing. Numbers of one sign, of
// [0, 1), get there after 2^25 of them, and the description takes half as many at most.

#include "epilogue/grid_sum.cuh"
#include "types/index.cuh"

// Zeros between launches: the sum so far, and the blocks that have added to it.
struct Total {
    float sum;
    unsigned blocks;
};

template <int Block>
__global__ void __launch_bounds__(Block)
sum_atomic(const float* __restrict__ input, float* __restrict__ output, Index elements, Total* total) {
    const Index i = Index(blockIdx.x) * Block + threadIdx.x;
    if (i < elements) atomicAdd(&total->sum, input[i]);

    // The last block to come hands the sum out, and leaves a zero for the next launch.
    if (is_last_slice(&total->blocks, gridDim.x) && threadIdx.x == 0) {
        output[0] = atomicExch(&total->sum, 0.0f);
    }
}
