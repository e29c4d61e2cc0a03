// output[0] = the sum of `elements` numbers, the same bits in every launch.
//
// Atomic additions come in any order, and fp32 sums depend on it. Here each block leaves its sum in a
// place of its own, and the last block to come adds up all of them, in the order of the blocks: which
// block is the last makes no difference. Parameters and size alone say how many blocks there are, so that
// another GPU gets the same bits as well.
//
// Nothing is waited for: a block counts itself and leaves.

#include "epilogue/grid_sum.cuh"
#include "simt/block_sum.cuh"
#include "types/element.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// sums: room for one number a block. arrived: zero between launches.
template <class T, int Block, int Loads>
__global__ void __launch_bounds__(Block)
sum_fixed_order(const T* __restrict__ input, float* __restrict__ output, Index elements, float* sums,
                unsigned* arrived) {
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
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    if (!is_last_slice(arrived, gridDim.x)) return;

    float all = 0.0f;
    for (int block = threadIdx.x; block < gridDim.x; block += Block) all += sums[block];
    all = block_sum<Block>(all);
    if (threadIdx.x == 0) output[0] = all;
}
