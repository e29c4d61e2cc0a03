// output[0] = the sum of `elements` numbers: warps add up theirs in registers, by shuffles.
//
// A lane reads a register of another lane: five rounds add up 32 numbers without shared memory and without
// a barrier. One number a warp goes through shared memory, and the first warp adds these up in the same
// way: two barriers in all, where the tree needs log2(Block) + 1. The other warps go on to their next
// numbers meanwhile.
//
// A thread still waits for one word, and adds it to the others' before it asks for the next one.

#include "epilogue/grid_sum.cuh"
#include "types/index.cuh"

// Zeros between launches: the sum so far, and the blocks that have added to it.
struct Total {
    float sum;
    unsigned blocks;
};

// The sum over a warp, in its first lane.
__device__ float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value += __shfl_down_sync(0xffffffffu, value, apart);
    return value;
}

// The sum over a block, in its first thread.
template <int Block>
__device__ float block_sum(float value) {
    __shared__ float sums[Block / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    value = warp_sum(value);
    __syncthreads();  // the first warp has read the sums before
    if (lane == 0) sums[warp] = value;
    __syncthreads();  // the sums of all warps are written
    return warp == 0 ? warp_sum(lane < Block / 32 ? sums[lane] : 0.0f) : 0.0f;
}

template <int Block>
__global__ void __launch_bounds__(Block)
sum_shuffle(const float* __restrict__ input, float* __restrict__ output, Index elements, Total* total) {
    float own = 0.0f;  // of the block, in its first thread
    for (Index first = Index(blockIdx.x) * Block; first < elements; first += Index(gridDim.x) * Block) {
        const Index i = first + threadIdx.x;
        own += block_sum<Block>(i < elements ? input[i] : 0.0f);
    }
    if (threadIdx.x == 0) atomicAdd(&total->sum, own);

    // The last block to come hands the sum out, and leaves a zero for the next launch.
    if (is_last_slice(&total->blocks, gridDim.x) && threadIdx.x == 0) {
        output[0] = atomicExch(&total->sum, 0.0f);
    }
}
