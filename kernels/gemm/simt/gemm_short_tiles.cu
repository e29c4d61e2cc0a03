// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: gemm_staged with cp.async, and some tiles
// of C shorter than the others.
//
// The technique: tiles of two heights, so that all waves are full. At M = N = K = 8192 there are 2048 tiles
// of 128 x 256 for 132 multiprocessors, 15.5 waves, and in the last one half of them had none. Now there are
// 16 full waves, and some tiles are so much shorter that all cover the same rows as before
// (schedule/two_heights.cuh). A short tile lies in shared memory as a tall one does (layout/row_map.cuh): its
// threads load the same fragments, and leave out the last of their eight rows. In a tile of 112 rows all
// threads do, in one of 120 only the lower half of the warps does: the two warps of a multiprocessor's
// sub-partition compute 8 + 7 rows per thread. No two blocks share a tile.
//
// Tile, Copy, Fragments, Order: policies of gemm_staged (simt/policies.cuh). Where K is 0 the accumulators
// stay zero, and C becomes beta * C.

#include "layout/row_map.cuh"
#include "schedule/staged_loop.cuh"
#include "schedule/two_heights.cuh"
#include "simt/policies.cuh"
#include "simt/thread_tile.cuh"
#include "types/index.cuh"

// Words: of a global access. Rows: of the thread's outputs.
template <class Tile, class Copy, class Fragments, class Order, int Words, int Rows>
__device__ inline void compute_tile(const float* a, const float* b, float* c, int m, int n, int k,
                                    float alpha, float beta, Index first_row, int first_column,
                                    ThreeOfFour<Tile::bm / 8> map) {
    using SharedTiles = typename Copy::template SharedTiles<Tile, Words, ThreeOfFour<Tile::bm / 8>>;
    using Outputs = typename Fragments::template Outputs<Tile>;
    extern __shared__ __align__(128) char shared[];

    const int thread = threadIdx.x, k_tiles = ceil_div(k, Tile::bk);
    typename SharedTiles::Pair copies{typename SharedTiles::CopyA(a, m, k, first_row, 0, thread, map),
                                      typename SharedTiles::CopyB(b, k, n, 0, first_column, thread)};
    ThreadTile<Tile, SharedTiles, Fragments, Order::ffmas, Rows> thread_tile(shared, Outputs::row(thread),
                                                                             Outputs::column(thread));
    // Load, wait, multiply: tile after tile along K.
    constexpr int unrolled = Copy::width == 0 && Words == 1 ? Fragments::buffers : 0;  // rare: unroll less
    staged_loop<Copy::stages, Fragments::buffers, unrolled>(copies, thread_tile, shared, k_tiles);
    // Store.
    Epilogue<false>::store<Tile, Words>(thread_tile, shared, c, m, n, first_row, first_column, alpha, beta,
                                        map);
}

template <class Tile, class Copy, class Fragments, class Order, int ShortRows, int Words>
__device__ inline void compute_block(const float* a, const float* b, float* c, int m, int n, int k,
                                     float alpha, float beta) {
    static_assert(Tile::tm == 8, "two groups of four rows");
    // Each row of threads with seven rows shortens the tile by one.
    constexpr int thread_rows = Tile::bm / Tile::tm, whole = thread_rows - (Tile::bm - ShortRows);
    const TwoHeights<Tile::bm, ShortRows> tiles(m, ceil_div(n, Tile::bn), gridDim.x);
    const TileOfTwo tile = tiles.tile(blockIdx.x);
    if (tile.first_row >= m) return;
    const ThreeOfFour<thread_rows> map{tile.tall ? thread_rows : whole};
    const int first_column = tile.column * Tile::bn;
    // Threads of a warp agree, and those of a block meet at the same barriers either way.
    if (map.whole(Fragments::template Outputs<Tile>::row(threadIdx.x))) {
        compute_tile<Tile, Copy, Fragments, Order, Words, Tile::tm>(a, b, c, m, n, k, alpha, beta,
                                                                    tile.first_row, first_column, map);
    } else {
        compute_tile<Tile, Copy, Fragments, Order, Words, Tile::tm - 1>(a, b, c, m, n, k, alpha, beta,
                                                                        tile.first_row, first_column, map);
    }
}

template <class Tile, class Copy, class Fragments, class Order, int ShortRows>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
gemm_short_tiles(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                 int m, int n, int k, float alpha, float beta) {
    if constexpr (Copy::width != 0) {
        compute_block<Tile, Copy, Fragments, Order, ShortRows, Copy::width>(a, b, c, m, n, k, alpha, beta);
    } else if (n % 4 == 0 && k % 4 == 0) {
        compute_block<Tile, Copy, Fragments, Order, ShortRows, 4>(a, b, c, m, n, k, alpha, beta);
    } else {
        compute_block<Tile, Copy, Fragments, Order, ShortRows, 1>(a, b, c, m, n, k, alpha, beta);
    }
}
