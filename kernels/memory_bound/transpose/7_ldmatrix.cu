// output[j][i] = input[i][j], in 16 bits: ldmatrix turns the squares on their way out of shared memory.
//
// ldmatrix.trans (ptx-isa) reads four matrices of 8 x 8 elements from 32 lines of 16 bytes, and gives
// every lane what it would have of the transposed ones. stmatrix takes just that, and writes them as lines
// of 16 bytes. Two instructions of a warp turn 256 elements, and no thread takes elements apart. Both go
// by the eight lines of one matrix at a time. TMA's swizzle has them in eight places of 16 bytes, which
// are all banks.
//
// Element: of 16 bits. Side: boxes of 64 x 64 elements along each side of the tile; 64 threads a box.

#include "ptx/tma.cuh"

template <class Element, int Side>
__global__ void __launch_bounds__(64 * Side * Side)
transpose_ldmatrix(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to) {
    constexpr int Box = 64;
    static_assert(sizeof(Element) == 2, "matrices have lines of eight elements, of 16 bytes");
    struct Tile {
        Element box[Side][Side][Box][8][8];
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

    // A warp has four columns of matrices, of eight each; a lane has line `line` of matrix `matrix` of four.
    const int box = threadIdx.x / 64, down = box / Side, across = box % Side;
    const int line = threadIdx.x % 8, matrix = threadIdx.x / 8 % 4, first = threadIdx.x / 32 % 2 * 4;
#pragma unroll
    for (int x = first; x < first + 4; ++x) {
#pragma unroll
        for (int four = 0; four < 8; four += 4) {
            const int y = four + matrix;
            unsigned word[4];
            ldmatrix_trans(shared_address(in.box[down][across][y * 8 + line][x ^ line]), word);
            stmatrix(out.box[across][down][x * 8 + line][y ^ line], word);
        }
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
