// output[0] = the sum of `elements` numbers: a block adds up its own in shared memory, and adds once to
// the total.
//
// A tree: in each round half of the numbers that are left are added to the other half, so that Block
// numbers take log2(Block) rounds and Block - 1 additions. Neighbours are added first: the numbers that
// are left lie 2, 4, 8, ... apart (Harris's interleaved addressing, with neighbouring threads at work).
// The words that a warp reads are as far from one another: in blocks of 256 they meet in a bank by 2, 4,
// then 8 at a time.
//
// One atomic addition a block in the place of one a thread.

#include "epilogue/grid_sum.cuh"
#include "types/index.cuh"

// Zeros between launches: the sum so far, and the blocks that have added to it.
struct Total {
    float sum;
    unsigned blocks;
};

template <int Block>
__global__ void __launch_bounds__(Block)
sum_interleaved(const float* __restrict__ input, float* __restrict__ output, Index elements, Total* total) {
    __shared__ float sums[Block];
    const int thread = threadIdx.x;
    const Index i = Index(blockIdx.x) * Block + thread;

    sums[thread] = i < elements ? input[i] : 0.0f;
    for (int apart = 1; apart < Block; apart *= 2) {
        __syncthreads();  // the sums of the round before are written
        const int at = 2 * apart * thread;
        if (at + apart < Block) sums[at] += sums[at + apart];
    }
    if (thread == 0) atomicAdd(&total->sum, sums[0]);

    // The last block to come hands the sum out, and leaves a zero for the next launch.
    if (is_last_slice(&total->blocks, gridDim.x) && thread == 0) {
        output[0] = atomicExch(&total->sum, 0.0f);
    }
}
