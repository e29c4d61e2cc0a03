// output[j][i] = input[i][j]: file 5, with tiles in an order that leaves longer runs in both matrices.
//
// Blocks that run together take tiles side by side. In the order of rows they have whole rows of the input,
// and a few tiles in each row of the output: short runs, in all rows. Here the input is cut into strips of
// Strip tiles, which are walked row by row, as a GEMM's tiles are for the L2 (gemm-practice). What is under
// way is then nearer to a square, whose runs are as long in the output as in the input.
//
// Element: as many bytes as one of the matrix. Across: vectors of 16 bytes along each side of a tile, so that
// it has 256 or 512 bytes of each row. A block of 256 threads turns its squares in one step or in four.

#include "schedule/raster.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <class Element, int Across, int Strip>
__global__ void __launch_bounds__(256)
transpose_strips(const Element* __restrict__ input, Element* __restrict__ output, Index rows, Index columns) {
    constexpr int Wide = 16 / sizeof(Element), Side = Across * Wide;
    constexpr int Down = 256 / Across, Steps = Across / Down;  // squares below one another that a step turns
    using Line = Vector<Element, Wide>;
    alignas(128) extern __shared__ unsigned char memory[];
    auto* tile = reinterpret_cast<Line(*)[Across]>(memory);
    const int x = threadIdx.x % Across, y = threadIdx.x / Across;
    const auto at = tile_position<Strip>(blockIdx.x, ceil_div(rows, Side), ceil_div(columns, Side));
    const Index first_row = Index(at.row) * Side, first_column = Index(at.column) * Side;

    Line square[Steps][Wide];
#pragma unroll
    for (int i = 0; i < Steps * Wide; ++i) {
        const Index row = first_row + (i / Wide * Down + y) * Wide + i % Wide;
        const Index column = first_column + x * Wide;
        if (row >= rows || column >= columns) continue;
        square[i / Wide][i % Wide] = reinterpret_cast<const Line*>(input + row * columns + column)[0];
    }
#pragma unroll
    for (int j = 0; j < Steps * Wide; ++j) {
        Line turned;
#pragma unroll
        for (int i = 0; i < Wide; ++i) turned.value[i] = square[j / Wide][i].value[j % Wide];
        tile[x * Wide + j % Wide][(j / Wide * Down + y) ^ x] = turned;
    }
    __syncthreads();  // the tile is whole
#pragma unroll
    for (int line = y; line < Side; line += Down) {
        const Index row = first_row + x * Wide, column = first_column + line;
        if (row < rows && column < columns) {
            reinterpret_cast<Line*>(output + column * rows + row)[0] = tile[line][x ^ line / Wide];
        }
    }
}
