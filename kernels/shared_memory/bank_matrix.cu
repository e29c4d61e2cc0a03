// A warp reads 8 x 8 matrices of 16-bit elements with ldmatrix out of a tile in shared memory; the block
// counts the cycles.
//
// The technique: the layout of the tile (gemm-practice). ldmatrix takes eight row addresses of 16 bytes a
// phase, one phase per matrix, and the rows of a matrix lie one below the other. Rows of 128 (64) bytes put
// them into the same 4 (8) banks, so a phase takes 8 (4) wavefronts. 16 bytes of padding per row, or an XOR
// of the 16-byte chunk with the row, spread them over all banks. Lane l addresses row l % 16, chunk l / 16.
// The patterns walk over the tile in steps of two chunks, then of 16 rows. All patterns differ, because ptxas
// joins ldmatrix of one address, volatile or not.
//
// TileLayout: tile_plain, tile_padded or tile_xor of Chunks. Chunks: of 16 bytes, in a row. Matrices: 1, 2 or
// 4 per access.

#include "layout/shared_layout.cuh"
#include "probe/bank_probe.cuh"

template <int Chunks>
constexpr int rows = 16 * patterns / (Chunks / 2);

template <int Chunks>
using tile_plain = Plain<rows<Chunks>, Chunks>;
template <int Chunks>
using tile_padded = Padded<rows<Chunks>, Chunks, 1>;

// Eight chunks fill the banks once. Rows that together fill them share one mask: the next such group takes
// another.
template <int Chunks>
struct tile_xor {
    static constexpr int words = rows<Chunks> * Chunks;
    static constexpr int rows_of_banks = 8 / Chunks;
    __host__ __device__ static constexpr int index(int row, int chunk) {
        return row * Chunks + (chunk ^ (row / rows_of_banks % Chunks));
    }
};

template <class TileLayout, int Chunks>
struct MatrixRows {
    static constexpr int words = 4 * TileLayout::words;
    __host__ __device__ static constexpr int word(int lane, int pattern) {
        const int pair = pattern % (Chunks / 2);
        const int step = pattern / (Chunks / 2);
        // Every layout repeats itself after 16 rows; said this way, a step is an offset within the
        // instruction.
        return 4 * (TileLayout::index(lane % 16, 2 * pair + lane / 16) + step * TileLayout::index(16, 0));
    }
};

template <template <int> class TileLayout, int Chunks, int Matrices, int Warps>
__global__ void __launch_bounds__(Warps * 32)
    bank_matrix(int* __restrict__ offsets, unsigned* __restrict__ sums, long long* __restrict__ cycles,
                int elements) {
    using Access = MatrixRows<TileLayout<Chunks>, Chunks>;
    alignas(128) __shared__ unsigned memory[Access::words];
    probe_banks<Access, ReadMatrix<Matrices>, Warps>(memory, offsets, sums, cycles, elements);
}
