// C = alpha * A @ B + beta * C, row-major, on tensor cores by mma.sync: fp16, bf16 or tf32, C in the type of A and B.
//
// The techniques, each a parameter (gemm-practice, the last one cutlass):
//   ldmatrix             takes an address per lane, so that tiles may lie XOR-swizzled: no conflicts and no padding
//   stages               a ring of tiles filled by cp.async hides the latency of global memory
//   fragment buffers     fragments loaded one step ahead hide that of shared memory
//   threadblock swizzle  blocks that run together share operands in the L2
//   collective store     sums reach C in whole lines, through shared memory
//
// Element: __half, __nv_bfloat16, or float for tf32. Sum: float, or __half. BM, BN, BK: block tile; WM, WN: warp tile,
// in elements. Stages: tiles in shared memory. Layout: swizzle_none or swizzle_xor. Pad: elements added to each row of
// both tiles. Buffers: fragments of 1 or 2 steps in registers. Strip: width of the threadblock swizzle in tiles, 0 for
// none. How: way of the sums into C. MinBlocks: blocks that a multiprocessor must have registers for.

#include "index.cuh"
#include "mma_warp.cuh"
#include "operand_copy.cuh"
#include "raster.cuh"
#include "staged_loop.cuh"
#include "tile_pair.cuh"
#include "warp_output.cuh"

template <class Element, class Sum, int BM, int BN, int BK, int WM, int WN, int Stages,
          template <int, int> class Layout, int Pad, int Buffers, int Strip, Store How, int MinBlocks>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, MinBlocks)
mma_staged(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
           int m, int n, int k, float alpha, float beta) {
    constexpr int threads = BM / WM * (BN / WN) * 32, width = per_chunk<Element>;
    using LayoutA = Layout<BK / width, Pad / width>;
    using LayoutB = Layout<BN / width, Pad / width>;
    using CopyA = OperandCopy<Element, BM, BK, LayoutA, threads>;
    using CopyB = OperandCopy<Element, BK, BN, LayoutB, threads>;
    using Warp = MmaWarp<Element, Sum, WM, WN, BK, LayoutA, LayoutB, Buffers>;
    extern __shared__ __align__(128) char shared[];

    const int thread = threadIdx.x, lane = thread % 32;
    const int warp_row = thread / 32 / (BN / WN) * WM, warp_column = thread / 32 % (BN / WN) * WN;
    const TilePosition tile = tile_position<Strip>(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN));
    const Index first_row = Index(tile.row) * BM;
    const int first_column = tile.column * BN;

    TilePair<CopyA, CopyB> copies{CopyA(a, m, k, first_row, 0, thread), CopyB(b, k, n, 0, first_column, thread)};
    const unsigned tiles = shared_address(shared);
    Warp warp(tiles, tiles + CopyA::bytes, warp_row, warp_column, lane);
    multiply_tiles<Stages, Buffers>(copies, warp, shared, ceil_div(k, BK));

    const Index row = first_row + warp_row, column = Index(first_column) + warp_column;
    if constexpr (How == Store::collective) {
        float* slab = reinterpret_cast<float*>(shared) + thread / 32 * slab_rows_mma * slab_pitch<Element, WN>;
        release_stages();
        store_collectively<WM, WN>(warp, slab, c, m, n, row, column, lane, alpha, beta);
    } else {
#pragma unroll
        for (int block = 0; block < WM / 8; ++block) {
            warp.for_each_run(block, lane, [&](int at_row, int at_column, const float(&sum)[2]) {
                const Index to_row = row + 8 * block + at_row, to_column = column + at_column;
                if (to_row < m && to_column < n) blend_neighbours(c + to_row * n + to_column, sum, alpha, beta);
            });
        }
    }
}
