// output[0] = the sum of `elements` numbers: loads of 16 bytes, several of them under way in each thread.
//
// What the memory delivers is what is under way over the time that a load takes (Little's law): 4.8 TB/s
// times some 700 ns are 25 KiB for each of 132 multiprocessors. 2048 threads with one word each have 8 KiB
// under way, with four vectors 128. So a thread asks for Loads vectors before it adds up the first one; a
// quarter of the instructions asks for the same bytes.
//
// Few numbers take few blocks, Loads vectors a thread: each block costs two atomics, one after the other.
// Of bf16 a vector holds eight; they are added up in fp32, and so is the output.

#include "epilogue/grid_sum.cuh"
#include "simt/block_sum.cuh"
#include "types/element.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// Zeros between launches: the sum so far, and the blocks that have added to it.
struct Total {
    float sum;
    unsigned blocks;
};

template <class T, int Block, int Loads>
__global__ void __launch_bounds__(Block)
sum_vectors(const T* __restrict__ input, float* __restrict__ output, Index elements, Total* total) {
    constexpr int width = 16 / sizeof(T);  // numbers of a vector
    const Index stride = Index(gridDim.x) * Block, vectors = elements / width;
    Index i = Index(blockIdx.x) * Block + threadIdx.x;
    // Numbers behind the last whole vector, one for each of the first threads.
    float own = i < elements % width ? to_float(input[width * vectors + i]) : 0.0f;

#pragma unroll 1
    for (; i + (Loads - 1) * stride < vectors; i += Loads * stride) {
        Vector<T, width> loaded[Loads];
#pragma unroll
        for (int load = 0; load < Loads; ++load) {
            loaded[load] = load_vector<width>(input + width * (i + load * stride));
        }
#pragma unroll
        for (int load = 0; load < Loads; ++load) own += sum_of(loaded[load]);
    }
#pragma unroll 1
    for (; i < vectors; i += stride) own += sum_of(load_vector<width>(input + width * i));

    const float sum = block_sum<Block>(own);
    if (threadIdx.x == 0) atomicAdd(&total->sum, sum);

    // The last block to come hands the sum out, and leaves a zero for the next launch.
    if (is_last_slice(&total->blocks, gridDim.x) && threadIdx.x == 0) {
        output[0] = atomicExch(&total->sum, 0.0f);
    }
}
