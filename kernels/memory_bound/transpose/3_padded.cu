// output[j][i] = input[i][j]: the tile in shared memory has one more column, which nobody uses.
//
// In fp32 rows are 33 words apart: each begins one bank further, and a column lies in 32 banks. In bf16
// they are 16 and a half words apart: even rows begin in banks 0, 1, 2, ..., and odd rows in banks 16, 17,
// 18, ..., which is one word for each bank again.
//
// Element: as many bytes as one of the matrix. Block: threads per block, for a tile of 32 x 32 elements.

#include "types/index.cuh"

template <class Element, int Block>
__global__ void __launch_bounds__(Block)
transpose_padded(const Element* __restrict__ input, Element* __restrict__ output, Index rows, Index columns) {
    __shared__ Element tile[32][32 + 1];
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
