// output[0] = the sum of `elements` numbers: the tree in shared memory again, without bank conflicts.
//
// The upper half of the numbers that are left is added to the lower half (Harris's sequential addressing).
// What is left stays side by side, so that a warp reads and writes neighbouring words, which lie in
// different banks.
//
// Still half of the threads rest after the first round, and each round ends with a barrier of the whole
// block.

#include "epilogue/grid_sum.cuh"
#include "types/index.cuh"

// Zeros between launches: the sum so far, and the blocks that have added to it.
struct Total {
    float sum;
    unsigned blocks;
};

template <int Block>
__global__ void __launch_bounds__(Block)
sum_sequential(const float* __restrict__ input, float* __restrict__ output, Index elements, Total* total) {
    __shared__ float sums[Block + 1];  // the last one: of all trees so far
    const int thread = threadIdx.x;
    if (thread == 0) sums[Block] = 0.0f;

    for (Index first = Index(blockIdx.x) * Block; first < elements; first += Index(gridDim.x) * Block) {
        const float number = first + thread < elements ? input[first + thread] : 0.0f;
        __syncthreads();  // the tree before is done
        sums[thread] = number;
        for (int left = Block / 2; left > 0; left /= 2) {
            __syncthreads();  // the sums of the round before are written
            if (thread < left) sums[thread] += sums[thread + left];
        }
        if (thread == 0) sums[Block] += sums[0];
    }
    if (thread == 0) atomicAdd(&total->sum, sums[Block]);

    // The last block to come hands the sum out, and leaves a zero for the next launch.
    if (is_last_slice(&total->blocks, gridDim.x) && thread == 0) {
        output[0] = atomicExch(&total->sum, 0.0f);
    }
}
