// C = alpha * A @ B + beta * C, row-major, on tensor cores through WMMA: fp16, bf16 or tf32, C in the type of
// A and B.
//
// The techniques, each a parameter (gemm-practice, the last one cutlass):
//   warp tile            a fragment serves a whole row or column of a warp tile's fragments
//                        (`mma4x2_warp2x4`)
//   stages               a ring of tiles filled by cp.async
//   padding              spreads the rows of a tile over the banks
//   threadblock swizzle  blocks that run together share operands in the L2
//   collective store     accumulators reach C in whole lines of the warp tile
// WMMA does not specify which lane holds which accumulator, so they reach C by way of shared memory.
//
// Element: __half, __nv_bfloat16, or float for tf32. Accumulator: float, or __half. BM, BN, BK: block tile;
// WM, WN: warp tile, in elements. Stages: tiles in shared memory, 1 without cp.async. Pad: elements added to
// each row of both tiles. Buffers: fragments of 1 or 2 steps in registers. Strip: width of the threadblock
// swizzle in tiles, 0 for none. Store: way of the accumulators into C, a fragment or a row of fragments at a
// time. MinBlocks: blocks that a multiprocessor must have registers for.

#include "copy/chunk_copy.cuh"
#include "copy/tile_pair.cuh"
#include "epilogue/warp_store.cuh"
#include "mma/wmma_warp.cuh"
#include "schedule/raster.cuh"
#include "schedule/staged_loop.cuh"
#include "types/index.cuh"

template <class Element, class Accumulator, int BM, int BN, int BK, int WM, int WN, int Stages, int Pad,
          int Buffers, int Strip, StoreMethod Store, int MinBlocks>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, MinBlocks)
wmma_staged(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
            int m, int n, int k, float alpha, float beta) {
    constexpr int threads = BM / WM * (BN / WN) * 32, width = per_chunk<Element>;
    using CopyA = ChunkCopy<Element, BM, BK, PaddedChunks<BK / width, Pad / width>, threads>;
    using CopyB = ChunkCopy<Element, BK, BN, PaddedChunks<BN / width, Pad / width>, threads>;
    extern __shared__ __align__(128) char shared[];

    const int thread = threadIdx.x, warp = thread / 32;
    const int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN;
    const TilePosition tile = tile_position<Strip>(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN));
    const Index first_row = Index(tile.row) * BM;
    const int first_column = tile.column * BN;

    TilePair<CopyA, CopyB> copies{CopyA(a, m, k, first_row, 0, thread),
                                  CopyB(b, k, n, 0, first_column, thread)};
    const unsigned tiles = shared_address(shared);
    using Warp = WmmaWarp<Element, Accumulator, WM, WN, BK, BK + Pad, BN + Pad, Buffers>;
    Warp warp_tile(tiles, tiles + CopyA::bytes, warp_row, warp_column);
    staged_loop<Stages, Buffers>(copies, warp_tile, shared, ceil_div(k, BK));

    const Index row = first_row + warp_row, column = Index(first_column) + warp_column;
    constexpr int columns = Store == StoreMethod::collective ? WN : 16;
    constexpr int pitch = shared_pitch<Element, columns>;
    Accumulator* shared_c = reinterpret_cast<Accumulator*>(shared) + warp * shared_rows_wmma * pitch;
    release_stages();
#pragma unroll
    for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
        for (int x = 0; x < WN; x += columns) {
            warp_tile.template store_shared<columns, pitch>(shared_c, y, x);
            __syncwarp();
            store_rows<columns>(c, m, n, row + 16 * y, column + x, shared_c, alpha, beta);
            __syncwarp();  // shared_c has been read
        }
    }
}
