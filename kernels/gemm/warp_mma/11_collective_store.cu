// Tried, does not pay in tf32.
//
// C = alpha * A @ B + beta * C on tensor cores, in fp16, bf16 or tf32: a 128 x 128 tile of C per block.
// Rung 11 of docs/ladders/tensor-cores.md: collective store.
//
// The technique: a warp stores whole lines (cutlass). In bf16 a lane of rung 10 stores two sums, four
// bytes, and one instruction of its warp writes 16 bytes of eight rows each. Now a warp lays eight rows of
// sums into shared memory, where tiles were, and reads them along the rows: 16 bytes a lane, and 128 bytes
// of a row side by side. The price: two more ways through shared memory, once a block. The loop is the
// same: expect at most what the stores take, and less in tf32, where a lane stored eight bytes already.
//
// Element: __half, __nv_bfloat16, or float for tf32; sums are fp32. Stages: pairs of tiles. Strip: width
// of the threadblock swizzle in tiles, 0 for row by row. n and k: multiples of 16 bytes.

#include "copy/chunk_copy.cuh"
#include "copy/tile_pair.cuh"
#include "epilogue/warp_store.cuh"
#include "mma/mma_warp.cuh"
#include "ptx/async_copy.cuh"
#include "schedule/raster.cuh"
#include "types/index.cuh"

constexpr int BM = 128, BN = 128, WM = 64, WN = 64;  // block tile and warp tile, in elements
constexpr int threads = BM / WM * (BN / WN) * 32;

template <class Element, int Stages, int Strip>
__global__ void __launch_bounds__(threads, 1)
mma_collective_store(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
                     int m, int n, int k, float alpha, float beta) {
    constexpr int chunk = per_chunk<Element>, depth = 2 * chunk, BK = 2 * depth;  // 16, 32 and 64 bytes
    using LayoutA = XorChunks<BK / chunk>;
    using LayoutB = XorChunks<BN / chunk>;
    using CopyA = ChunkCopy<Element, BM, BK, LayoutA, threads>;
    using CopyB = ChunkCopy<Element, BK, BN, LayoutB, threads>;
    constexpr int steps = BK / depth, bytes = CopyA::bytes + CopyB::bytes;  // of a stage
    extern __shared__ __align__(128) char shared[];  // the stages: a tile of A, and behind it one of B
    const int thread = threadIdx.x, index = thread / 32, lane = thread % 32;
    const int warp_row = index / (BN / WN) * WM, warp_column = index % (BN / WN) * WN;
    const TilePosition tile = tile_position<Strip>(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN));
    const Index first_row = Index(tile.row) * BM;
    const int first_column = tile.column * BN;
    TilePair<CopyA, CopyB> copies{CopyA(a, m, k, first_row, 0, thread),
                                  CopyB(b, k, n, 0, first_column, thread)};
    const unsigned tiles = shared_address(shared);
    MmaWarp<Element, float, WM, WN, BK, LayoutA, LayoutB, 2> warp(tiles, tiles + CopyA::bytes, warp_row,
                                                                  warp_column, lane);
    const auto next = [](int stage) { return stage + bytes == Stages * bytes ? 0 : stage + bytes; };

#pragma unroll
    for (int stage = 0; stage < Stages - 1; ++stage) {
        copies.start(tiles + stage * bytes, 0, 1);
        copies.advance();  // along K: A's tile to the right, B's down
        commit_copies();
    }
    int reading = 0, writing = (Stages - 1) * bytes;  // offsets of stages
    wait_for_copies<Stages - 2>();
    __syncthreads();  // the first stage is complete
    warp.load(reading, 0, 0);
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            if (step == steps - 1) {
                wait_for_copies<Stages - 2>();
                __syncthreads();  // the next stage is complete, and all warps have read this one
                reading = next(reading);
            }
            warp.load(reading, (step + 1) % steps, (step + 1) % 2);
            if (step == 0) {  // a group of copies into the stage that all have read
                copies.start(tiles + writing, 0, 1);
                copies.advance();
                commit_copies();
                writing = next(writing);
            }
            warp.multiply(step % 2);
        }
    }
    wait_for_copies<0>();  // those past the end of K, which write zeros
    __syncthreads();       // all warps have read the tiles: shared_c takes their place

    const Index row = first_row + warp_row, column = Index(first_column) + warp_column;
    constexpr int pitch = shared_pitch<Element, WN>;
    float* shared_c = reinterpret_cast<float*>(shared) + index * shared_rows_mma * pitch;
#pragma unroll
    for (int rows = 0; rows < WM; rows += shared_rows_mma) {  // eight at a time
        warp.for_each_pair(rows / 8, lane, [&](int at_row, int at_column, const float (&sums)[2]) {
            store_shared(shared_c + at_row * pitch + at_column, sums);
        });
        __syncwarp();
        store_rows<WN, shared_rows_mma>(c, m, n, row + rows, column, shared_c, alpha, beta);
        __syncwarp();  // shared_c has been read
    }
}
