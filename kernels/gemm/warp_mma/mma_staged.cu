// C = alpha * A @ B + beta * C, row-major, on tensor cores by mma.sync: fp16, bf16 or tf32, C in the type of
// A and B.
//
// The techniques, each a parameter (gemm-practice, the last one cutlass):
//   ldmatrix             takes an address per lane, so that tiles may lie XOR-swizzled: no conflicts and no
//                        padding
//   stages               a ring of tiles filled by cp.async hides the latency of global memory
//   fragment buffers     fragments loaded one step ahead hide that of shared memory
//   threadblock swizzle  blocks that run together share operands in the L2
//   collective store     accumulators reach C in whole lines, through shared memory
//
// Element: __half, __nv_bfloat16, or float for tf32. Accumulator: float, or __half. BM, BN, BK: block tile;
// WM, WN: warp tile, in elements. Stages: tiles in shared memory. Layout: swizzle_none or swizzle_xor. Pad:
// elements added to each row of both tiles. Buffers: fragments of 1 or 2 steps in registers. Strip: width of
// the threadblock swizzle in tiles, 0 for none. Store: way of the accumulators into C. MinBlocks: blocks that
// a multiprocessor must have registers for.

#include "copy/chunk_copy.cuh"
#include "copy/tile_pair.cuh"
#include "epilogue/warp_store.cuh"
#include "mma/mma_warp.cuh"
#include "schedule/raster.cuh"
#include "schedule/staged_loop.cuh"
#include "types/index.cuh"

template <class Element, class Accumulator, int BM, int BN, int BK, int WM, int WN, int Stages,
          template <int, int> class Layout, int Pad, int Buffers, int Strip, StoreMethod Store, int MinBlocks>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, MinBlocks)
mma_staged(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
           int m, int n, int k, float alpha, float beta) {
    constexpr int threads = BM / WM * (BN / WN) * 32, width = per_chunk<Element>;
    using LayoutA = Layout<BK / width, Pad / width>;
    using LayoutB = Layout<BN / width, Pad / width>;
    using CopyA = ChunkCopy<Element, BM, BK, LayoutA, threads>;
    using CopyB = ChunkCopy<Element, BK, BN, LayoutB, threads>;
    using Warp = MmaWarp<Element, Accumulator, WM, WN, BK, LayoutA, LayoutB, Buffers>;
    extern __shared__ __align__(128) char shared[];

    const int thread = threadIdx.x, lane = thread % 32;
    const int warp_row = thread / 32 / (BN / WN) * WM, warp_column = thread / 32 % (BN / WN) * WN;
    const TilePosition tile = tile_position<Strip>(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN));
    const Index first_row = Index(tile.row) * BM;
    const int first_column = tile.column * BN;

    TilePair<CopyA, CopyB> copies{CopyA(a, m, k, first_row, 0, thread),
                                  CopyB(b, k, n, 0, first_column, thread)};
    const unsigned tiles = shared_address(shared);
    Warp warp(tiles, tiles + CopyA::bytes, warp_row, warp_column, lane);
    staged_loop<Stages, Buffers>(copies, warp, shared, ceil_div(k, BK));

    const Index row = first_row + warp_row, column = Index(first_column) + warp_column;
    if constexpr (Store == StoreMethod::collective) {
        float* shared_c =
            reinterpret_cast<float*>(shared) + thread / 32 * shared_rows_mma * shared_pitch<Element, WN>;
        release_stages();
        store_collectively<WM, WN>(warp, shared_c, c, m, n, row, column, lane, alpha, beta);
    } else {
#pragma unroll
        for (int rows = 0; rows < WM / 8; ++rows) {
            warp.for_each_pair(rows, lane, [&](int at_row, int at_column, const float(&accumulator)[2]) {
                const Index to_row = row + 8 * rows + at_row, to_column = column + at_column;
                if (to_row < m && to_column < n) {
                    store_combined(c + to_row * n + to_column, accumulator, alpha, beta);
                }
            });
        }
    }
}
