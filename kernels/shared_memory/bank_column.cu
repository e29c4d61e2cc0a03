// A warp reads a column of a 32 x 32 tile of words in shared memory; the block counts the cycles.
//
// The technique: the layout of the tile. Row after row, a column lies in one bank and takes 32 wavefronts
// (bank-conflicts). One word of padding per row, or the column XORed with the row, spreads it over all banks
// (gemm-practice). Lane l reads row l; pattern j is column j.
//
// TileLayout: tile_plain, tile_padded or tile_xor. Warps: warps of the block.

#include "layout/shared_layout.cuh"
#include "probe/bank_probe.cuh"

using tile_plain = Plain<32, 32>;
using tile_padded = Padded<32, 32, 1>;
using tile_xor = Xor<32, 32>;

template <class TileLayout>
struct ColumnRead {
    static constexpr int words = TileLayout::words;
    __device__ static constexpr int word(int lane, int pattern) { return TileLayout::index(lane, pattern); }
};

template <class TileLayout, int Warps>
__global__ void __launch_bounds__(Warps * 32)
    bank_column(int* __restrict__ offsets, unsigned* __restrict__ sums, long long* __restrict__ cycles,
                int elements) {
    using Access = ColumnRead<TileLayout>;
    alignas(128) __shared__ unsigned memory[Access::words];
    probe_banks<Access, ReadVector<1>, Warps>(memory, offsets, sums, cycles, elements);
}
