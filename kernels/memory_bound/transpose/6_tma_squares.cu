// Tried, does not pay.
//
// output[j][i] = input[i][j]: TMA brings the tiles and takes them away; threads only turn them.
//
// One thread asks for the tile, and no register waits for it (ptx-isa). TMA swizzles both ways: in a box
// with lines of 128 bytes, vector v of line l lies in place v ^ l % 8. Eight lanes have all banks if these
// places differ. With squares side by side they would when they read, and not when they write: then v is
// one, and their lines are Wide apart. So eight lanes take squares that lie along a diagonal, where v and
// l change together.
//
// Element: as many bytes as one of the matrix. Side: boxes along each side of the tile; 64 threads a box.

#include "ptx/tma.cuh"
#include "types/vector.cuh"

template <class Element, int Side>
__global__ void __launch_bounds__(64 * Side * Side)
transpose_tma_squares(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to) {
    constexpr int Wide = 16 / sizeof(Element), Box = 8 * Wide;  // a box has Box x Box elements
    using Line = Vector<Element, Wide>;
    struct Tile {
        Line box[Side][Side][Box][8];
    };
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    struct Shared {
        Tile in, out;
        Mbarrier full;
    };
    auto& [in, out, full] = *reinterpret_cast<Shared*>(memory);
    const int first_row = blockIdx.y * Side * Box, first_column = blockIdx.x * Side * Box;

    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect(full, sizeof(Tile));
        for (int box = 0; box < Side * Side; ++box) {
            const int down = box / Side, across = box % Side;
            tma_load(in.box[down][across], from, first_row + down * Box, first_column + across * Box, full);
        }
    }
    __syncthreads();  // the barrier is there
    mbarrier_wait(full, 0);

    const int box = threadIdx.x / 64, down = box / Side, across = box % Side;
    const int x = threadIdx.x % 8, y = x ^ threadIdx.x / 8 % 8;
    Line square[Wide];
#pragma unroll
    for (int i = 0; i < Wide; ++i) {
        const int line = y * Wide + i;
        square[i] = in.box[down][across][line][x ^ line % 8];
    }
#pragma unroll
    for (int j = 0; j < Wide; ++j) {
        Line turned;
#pragma unroll
        for (int i = 0; i < Wide; ++i) turned.value[i] = square[i].value[j];
        const int line = x * Wide + j;
        out.box[across][down][line][y ^ line % 8] = turned;
    }

    fence_async_proxy();
    __syncthreads();  // the turned tile is whole
    if (threadIdx.x == 0) {
        for (int box = 0; box < Side * Side; ++box) {
            const int down = box / Side, across = box % Side;
            tma_store(to, first_column + down * Box, first_row + across * Box, out.box[down][across]);
        }
        commit_stores();
        wait_for_store_reads<0>();  // the memory is the next block's
    }
}
