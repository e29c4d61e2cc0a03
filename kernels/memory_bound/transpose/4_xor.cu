// Tried, does not pay.
//
// output[j][i] = input[i][j]: elements of the tile change places within their row, and no memory is added.
//
// Element x of row y lies in place x ^ y. A row keeps its own words, in another order, so that a warp that
// writes a row still has each word once. The elements of a column c are in places c ^ 0, c ^ 1, c ^ 2,
// ..., which all differ: in fp32 they lie in 32 banks. In bf16 two places share a word, and two rows have
// the 32 banks, a half each. Rows 0 and 1 have column c in the same word of their halves, rows 2 and 3 in
// another one, and so on.
//
// Element: as many bytes as one of the matrix. Block: threads per block, for a tile of 32 x 32 elements.

#include "types/index.cuh"

template <class Element, int Block>
__global__ void __launch_bounds__(Block)
transpose_xor(const Element* __restrict__ input, Element* __restrict__ output, Index rows, Index columns) {
    __shared__ Element tile[32][32];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const Index first_row = Index(blockIdx.y) * 32, first_column = Index(blockIdx.x) * 32;

#pragma unroll
    for (int step = 0; step < 32; step += Block / 32) {
        const Index row = first_row + y + step, column = first_column + x;
        if (row < rows && column < columns) tile[y + step][x ^ (y + step)] = input[row * columns + column];
    }
    __syncthreads();  // the tile is whole
#pragma unroll
    for (int step = 0; step < 32; step += Block / 32) {
        const Index row = first_row + x, column = first_column + y + step;
        if (row < rows && column < columns) output[column * rows + row] = tile[x][(y + step) ^ x];
    }
}
