// output[j][i] = input[i][j]: each thread carries elements from where they are to where they belong.
//
// A warp reads 32 neighbours of a row: whole lines. In the output they lie one below the other, a row
// apart, so that each goes to another sector of 32 bytes. The L2 takes a store to a sector for 4 bytes, in
// bf16 for 2. Where it keeps sectors for long enough, they go to memory whole.
//
// Element: as many bytes as one of the matrix; bits are moved as they are. Block: threads per block, for
// 32 x 32 elements.

#include "types/index.cuh"

template <class Element, int Block>
__global__ void __launch_bounds__(Block)
transpose_direct(const Element* __restrict__ input, Element* __restrict__ output, Index rows, Index columns) {
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const Index first_row = Index(blockIdx.y) * 32, column = Index(blockIdx.x) * 32 + x;

#pragma unroll
    for (int step = 0; step < 32; step += Block / 32) {
        const Index row = first_row + y + step;
        if (row < rows && column < columns) output[column * rows + row] = input[row * columns + column];
    }
}
