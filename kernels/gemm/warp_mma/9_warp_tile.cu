// C = alpha * A @ B + beta * C on tensor cores, in fp16, bf16 or tf32: a 128 x 128 tile of C per block.
// Rung 9 of docs/ladders/tensor-cores.md: warp tile.
//
// The technique: four warps of 64 x 64 outputs in place of eight of 32 x 64 (cutlass). A fragment of B now
// serves four of A, not two. For 64 x 64 outputs two warps loaded 2 * (32 + 64) rows and columns of
// fragments, one loads 64 + 64: a third less from shared memory. The price: 128 sums a thread, and half as
// many warps to cover waits. Expect a gain where warps queue for shared memory.
//
// Element: __half, __nv_bfloat16, or float for tf32; sums are fp32. Stages: pairs of tiles. Strip: width
// of the threadblock swizzle in tiles, 0 for row by row. n and k: multiples of 16 bytes.

#include "copy/chunk_copy.cuh"
#include "copy/tile_pair.cuh"
#include "epilogue/combine.cuh"
#include "mma/mma_warp.cuh"
#include "ptx/async_copy.cuh"
#include "schedule/raster.cuh"
#include "types/index.cuh"

constexpr int BM = 128, BN = 128, WM = 64, WN = 64;  // block tile and warp tile, in elements
constexpr int threads = BM / WM * (BN / WN) * 32;

template <class Element, int Stages, int Strip>
__global__ void __launch_bounds__(threads, 1)
mma_warp_tile(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
              int m, int n, int k, float alpha, float beta) {
    using Map = FragmentMap<Element>;  // which elements of a fragment a lane has
    constexpr int chunk = per_chunk<Element>, depth = 2 * chunk, BK = 2 * depth;  // 16, 32 and 64 bytes
    using LayoutA = XorChunks<BK / chunk>;
    using LayoutB = XorChunks<BN / chunk>;
    using CopyA = ChunkCopy<Element, BM, BK, LayoutA, threads>;
    using CopyB = ChunkCopy<Element, BK, BN, LayoutB, threads>;
    constexpr int steps = BK / depth, bytes = CopyA::bytes + CopyB::bytes;  // of a stage
    extern __shared__ __align__(128) char shared[];  // the stages: a tile of A, and behind it one of B
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN;
    const TilePosition tile = tile_position<Strip>(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN));
    const Index first_row = Index(tile.row) * BM;
    const int first_column = tile.column * BN;
    TilePair<CopyA, CopyB> copies{CopyA(a, m, k, first_row, 0, thread),
                                  CopyB(b, k, n, 0, first_column, thread)};
    const unsigned tiles = shared_address(shared);
    // Addresses of the lane's own words of the warp's first fragments.
    const int from_a = tiles + LayoutA::offset(warp_row + Map::row_a(lane), Map::chunk_a(lane));
    const int from_b = tiles + CopyA::bytes + Map::byte_b(lane) +
                       LayoutB::offset(Map::row_b(lane), warp_column / chunk + Map::chunk_b(lane));
    const auto next = [](int stage) { return stage + bytes == Stages * bytes ? 0 : stage + bytes; };

    AccumulatorFragment<float> accumulator[WM / 16][WN / 16][2];  // of 16 x 8 each
#pragma unroll
    for (int stage = 0; stage < Stages - 1; ++stage) {
        copies.start(tiles + stage * bytes, 0, 1);
        copies.advance();  // along K: A's tile to the right, B's down
        commit_copies();
    }
    int reading = 0, writing = (Stages - 1) * bytes;  // offsets of stages
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
        wait_for_copies<Stages - 2>();
        __syncthreads();  // the next stage is complete, and all warps have read the one before it
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            unsigned of_a[WM / 16][4], of_b[WN / 16][4];
#pragma unroll
            for (int y = 0; y < WM / 16; ++y) {
                ldmatrix(LayoutA::below(LayoutA::across(from_a, 2 * step), 16 * y) + reading, of_a[y]);
            }
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) {  // 16 bits: ldmatrix, transposed; tf32: two words a load
                const int at = LayoutB::below(LayoutB::across(from_b, Map::fragment_b(x)), depth * step);
                Map::template load_b<LayoutB>(at, reading, of_b[x]);
            }
            copies.start(tiles + writing, step, steps);  // a part of a tile's in each step
#pragma unroll
            for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
                for (int x = 0; x < WN / 16; ++x) Map::mma(accumulator[y][x], of_a[y], of_b[x]);
            }
        }
        copies.advance();
        commit_copies();
        reading = next(reading);
        writing = next(writing);
    }
    wait_for_copies<0>();  // those past the end of K, before the block ends

    const Index row = first_row + warp_row, column = Index(first_column) + warp_column;
#pragma unroll
    for (int i = 0; i < WM / 16 * 4; ++i) {  // a fragment of C has four pairs of neighbouring sums a lane
        const int y = i / 4, pair = i % 4;
#pragma unroll
        for (int x = 0; x < WN / 16; ++x) {
            const Index to_row = row + 16 * y + Map::pair_row(pair, lane);
            const Index to_column = column + Map::pair_column(pair, x, lane);
            const float sums[] = {Map::pair_value(accumulator[y][x], pair, 0),
                                  Map::pair_value(accumulator[y][x], pair, 1)};
            if (to_row < m && to_column < n) store_combined(c + to_row * n + to_column, sums, alpha, beta);
        }
    }
}
