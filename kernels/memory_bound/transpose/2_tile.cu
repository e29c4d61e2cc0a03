// output[j][i] = input[i][j]: through a tile in shared memory, so that warps write whole lines as well.
//
// A block reads a tile row by row and writes it column by column; neighbouring threads have neighbours in
// global memory both times. The turn is made where a stride costs less, in shared memory, which has 32
// banks of 4 bytes. It does cost: in fp32 all rows begin in the same bank, so that the 32 words of a
// column come one after the other. In bf16 rows begin in two banks in turn, and 16 words of a column share
// one.
//
// Element: as many bytes as one of the matrix. Block: threads per block, for a tile of 32 x 32 elements.

#include "types/index.cuh"

template <class Element, int Block>
__global__ void __launch_bounds__(Block)
transpose_tile(const Element* __restrict__ input, Element* __restrict__ output, Index rows, Index columns) {
    __shared__ Element tile[32][32];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const Index first_row = Index(blockIdx.y) * 32, first_column = Index(blockIdx.x) * 32;

#pragma unroll
    for (int step = 0; step < 32; step += Block / 32) {
        const Index row = first_row + y + step, column = first_column + x;
        if (row < rows && column < columns) tile[y + step][x] = input[row * columns + column];
    }
    __syncthreads();  // the tile is whole
#pragma unroll
    for (int step = 0; step < 32; step += Block / 32) {
        const Index row = first_row + x, column = first_column + y + step;
        if (row < rows && column < columns) output[column * rows + row] = tile[x][y + step];
    }
}
