// output[0] = the sum of `elements` numbers: a block adds up Block of them after the other in shared memory,
// and adds once to the total.
//
// A tree: in each round half of the numbers that are left are added to the other half, so that Block
// numbers take log2(Block) rounds and Block - 1 additions. Neighbours are added first: the numbers that
// are left lie 2, 4, 8, ... apart (Harris's interleaved addressing, with neighbouring threads at work).
// The words that a warp reads are as far from one another: in blocks of 256 they meet in a bank by 2, 4,
// then 8 at a time.
//
// One atomic addition a block in the place of one a thread, and few blocks: 1056 are all that 132
// multiprocessors hold at a time. With a block for each 256 numbers there would be 2^20 of 2^28, with two
// atomics at one address each. That took 3 ns a block on an H100, whatever the block did before it.

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
    __shared__ float sums[Block + 1];  // the last one: of all trees so far
    const int thread = threadIdx.x;
    if (thread == 0) sums[Block] = 0.0f;

    for (Index first = Index(blockIdx.x) * Block; first < elements; first += Index(gridDim.x) * Block) {
        const float number = first + thread < elements ? input[first + thread] : 0.0f;
        __syncthreads();  // the tree before is done
        sums[thread] = number;
        for (int apart = 1; apart < Block; apart *= 2) {
            __syncthreads();  // the sums of the round before are written
            const int at = 2 * apart * thread;
            if (at + apart < Block) sums[at] += sums[at + apart];
        }
        if (thread == 0) sums[Block] += sums[0];
    }
    if (thread == 0) atomicAdd(&total->sum, sums[Block]);

    // The last block to come hands the sum out, and leaves a zero for the next launch.
    if (is_last_slice(&total->blocks, gridDim.x) && thread == 0) {
        output[0] = atomicExch(&total->sum, 0.0f);
    }
}
