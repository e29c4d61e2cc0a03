// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: gemm_staged with cp.async, several tiles of
// C per block.
//
// The technique: stream-K (stream-k, cutlass). At M = N = K = 4096 there are 512 tiles of 128 x 256 for 132
// multiprocessors, and in the last of four waves 16 of them had none. Now the last two waves are cut along
// K into equal shares for all blocks (schedule/stream_k.cuh). Where two blocks share a tile, one leaves its
// sums in global memory and the other goes on from there (epilogue/partial_sums.cuh). The sweep fp32_stream_k
// measures it.
//
// Tile, Copy, Fragments, Order: policies of gemm_staged (simt/policies.cuh). sums: a float for each
// accumulator of each block; ready: a flag for each block, zero before and after. Where K is 0 the
// accumulators stay zero, and C becomes beta * C.

#include "epilogue/partial_sums.cuh"
#include "schedule/raster.cuh"
#include "schedule/staged_loop.cuh"
#include "schedule/stream_k.cuh"
#include "simt/policies.cuh"
#include "simt/thread_tile.cuh"
#include "types/index.cuh"

// Words: of a global access.
template <class Tile, class Copy, class Fragments, class Order, int Words>
__device__ inline void compute_tiles(const float* a, const float* b, float* c, float* sums, unsigned* ready,
                                     int m, int n, int k, float alpha, float beta) {
    using SharedTiles = typename Copy::template SharedTiles<Tile, Words>;
    using Outputs = typename Fragments::template Outputs<Tile>;
    using CopyA = typename SharedTiles::CopyA;
    using CopyB = typename SharedTiles::CopyB;
    extern __shared__ __align__(128) char shared[];
    constexpr int outputs = Tile::tm * Tile::tn;
    constexpr Index room = Index(Tile::threads) * outputs;

    const int thread = threadIdx.x, block = blockIdx.x;
    const auto barrier = [] { __syncthreads(); };
    TileSteps work{-1, 0, 0};
    while (true) {
        // Worked out anew for each tile: there is no register to keep it in.
        const int rows = ceil_div(hide_from_compiler(m), Tile::bm);
        const int columns = ceil_div(hide_from_compiler(n), Tile::bn);
        const int steps = const_max(1, ceil_div(hide_from_compiler(k), Tile::bk));
        const StreamK schedule(rows * columns, steps, gridDim.x);
        work = work.tile < 0 ? schedule.first(block) : schedule.after(work, block);
        if (work.steps == 0) return;
        const TilePosition tile = tile_position<Order::strip>(work.tile, rows, columns);
        const Index first_row = Index(tile.row) * Tile::bm;
        const int first_column = tile.column * Tile::bn, first_k = work.first * Tile::bk;
        typename SharedTiles::Pair copies{
            CopyA(a, m, k, first_row, first_k, thread % SharedTiles::copiers),
            CopyB(b, k, n, first_k, first_column, thread % SharedTiles::copiers)};
        ThreadTile<Tile, SharedTiles, Fragments, Order::ffmas> thread_tile(shared, Outputs::row(thread),
                                                                           Outputs::column(thread));
        auto& accumulator = reinterpret_cast<float(&)[outputs]>(thread_tile.accumulator);
        if (!work.has_first_step()) {  // the block before had the beginning of this tile
            take_sums<Tile::threads, false>(accumulator, sums + (block - 1) * room, ready + block - 1,
                                            thread, barrier);
        }
        // Load, wait, multiply: tile after tile along K.
        constexpr int unrolled = Words == 1 ? Fragments::buffers : 0;  // rare: short code
        staged_loop<Copy::stages, Fragments::buffers, unrolled>(copies, thread_tile, shared, work.steps);
        release_stages();
        // The next block may have the end of this tile.
        if (!work.has_last_step(const_max(1, ceil_div(hide_from_compiler(k), Tile::bk)))) {
            leave_sums<Tile::threads>(accumulator, sums + block * room, ready + block, thread, barrier);
            continue;
        }
        Epilogue<false>::store<Tile, Words>(thread_tile, shared, c, m, n, first_row, first_column, alpha,
                                            beta);
    }
}

template <class Tile, class Copy, class Fragments, class Order>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
gemm_stream_k(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, float* sums,
              unsigned* ready, int m, int n, int k, float alpha, float beta) {
    if (n % 4 == 0 && k % 4 == 0) {
        compute_tiles<Tile, Copy, Fragments, Order, 4>(a, b, c, sums, ready, m, n, k, alpha, beta);
    } else {
        compute_tiles<Tile, Copy, Fragments, Order, 1>(a, b, c, sums, ready, m, n, k, alpha, beta);
    }
}
