// output[0] = the sum of `elements` numbers: each thread adds up all of its own before it meets the others.
//
// Threads step over the line by the size of the grid, so that a warp always reads neighbouring words.
// Additions of a thread need no other thread: shuffles and barriers come once for all of a block's numbers
// (Harris's algorithm cascading). Nothing in the loop waits for another warp. The compiler unrolls it, so
// that a thread has four loads under way.

#include "epilogue/grid_sum.cuh"
#include "simt/block_sum.cuh"
#include "types/index.cuh"

// Zeros between launches: the sum so far, and the blocks that have added to it.
struct Total {
    float sum;
    unsigned blocks;
};

template <int Block>
__global__ void __launch_bounds__(Block)
sum_grid_stride(const float* __restrict__ input, float* __restrict__ output, Index elements, Total* total) {
    const Index stride = Index(gridDim.x) * Block;
    float own = 0.0f;
    for (Index i = Index(blockIdx.x) * Block + threadIdx.x; i < elements; i += stride) own += input[i];

    const float sum = block_sum<Block>(own);
    if (threadIdx.x == 0) atomicAdd(&total->sum, sum);

    // The last block to come hands the sum out, and leaves a zero for the next launch.
    if (is_last_slice(&total->blocks, gridDim.x) && threadIdx.x == 0) {
        output[0] = atomicExch(&total->sum, 0.0f);
    }
}
