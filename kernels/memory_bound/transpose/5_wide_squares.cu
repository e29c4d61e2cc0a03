// output[j][i] = input[i][j]: 16 bytes by each access, to global memory and to shared memory.
//
// A vector has Wide elements, 4 in fp32 and 8 in bf16. A thread loads Wide vectors that lie one below the
// other, a square of Wide x Wide elements, and turns it in registers: it then has Wide vectors of rows of
// the output. It leaves them in shared memory, from where half a warp writes a row of the turned tile, 256
// bytes. By 16 bytes eight lanes have all banks at a time. They store a column of vectors, each of another
// square: vector v of a row lies in place v ^ w, where w is the number of the row's square.
//
// Element: as many bytes as one of the matrix. The tile has 16 x 16 squares, one for each of 256 threads.

#include "types/index.cuh"
#include "types/vector.cuh"

template <class Element>
__global__ void __launch_bounds__(256)
transpose_wide_squares(const Element* __restrict__ input, Element* __restrict__ output, Index rows,
                       Index columns) {
    constexpr int Wide = 16 / sizeof(Element), Side = 16 * Wide;
    using Line = Vector<Element, Wide>;
    __shared__ Line tile[Side][16];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const Index first_row = Index(blockIdx.y) * Side, first_column = Index(blockIdx.x) * Side;

    Line square[Wide];
#pragma unroll
    for (int i = 0; i < Wide; ++i) {
        const Index row = first_row + y * Wide + i, column = first_column + x * Wide;
        if (row < rows && column < columns) square[i] = load_vector<Wide>(input + row * columns + column);
    }
#pragma unroll
    for (int j = 0; j < Wide; ++j) {
        Line turned;
#pragma unroll
        for (int i = 0; i < Wide; ++i) turned.value[i] = square[i].value[j];
        tile[x * Wide + j][y ^ x] = turned;
    }
    __syncthreads();  // the tile is whole
#pragma unroll
    for (int step = 0; step < Side; step += 16) {
        const Index row = first_row + x * Wide, column = first_column + y + step;
        if (row < rows && column < columns) {
            store_vector<Wide>(output + column * rows + row, tile[y + step][x ^ (y + step) / Wide]);
        }
    }
}
