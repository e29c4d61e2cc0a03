// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: gemm_staged with cp.async, K cut over the
// grid.
//
// The technique: split K without clusters (cutlass). At M = 2048, N = 512 and K = 8192 there are 32 tiles of
// 128 x 256 for 132 multiprocessors. With K in four slices there are 128 blocks, at most one on each.
// gemm_staged adds up the slices in a cluster of four. But 32 such clusters, whose blocks fill a
// multiprocessor each, do not find room at the same time, and the last ones wait for a second wave. Here a
// block of a slice runs wherever there is room, and the last of a tile's blocks adds up the sums of all
// through global memory (epilogue/grid_sum.cuh). The sweep fp32_shapes measures it.
//
// Tile, Copy, Fragments, Order: policies of gemm_staged (simt/policies.cuh). sums: a float for each
// accumulator of each block; arrived: a counter for each tile, zero before and after. Where K is 0 the
// accumulators stay zero, and C becomes beta * C.

#include "epilogue/grid_sum.cuh"
#include "schedule/raster.cuh"
#include "schedule/staged_loop.cuh"
#include "simt/policies.cuh"
#include "simt/thread_tile.cuh"
#include "types/index.cuh"

// Words: of a global access.
template <class Tile, class Copy, class Fragments, class Order, int Words>
__device__ inline void compute_slice(const float* a, const float* b, float* c, float* sums, unsigned* arrived,
                                     int m, int n, int k, float alpha, float beta) {
    using SharedTiles = typename Copy::template SharedTiles<Tile, Words>;
    using Outputs = typename Fragments::template Outputs<Tile>;
    using CopyA = typename SharedTiles::CopyA;
    using CopyB = typename SharedTiles::CopyB;
    extern __shared__ __align__(128) char shared[];
    constexpr int outputs = Tile::tm * Tile::tn;

    const int thread = threadIdx.x, slices = gridDim.y, slice = blockIdx.y;
    const TilePosition tile =
        tile_position<Order::strip>(blockIdx.x, ceil_div(m, Tile::bm), ceil_div(n, Tile::bn));
    const Index first_row = Index(tile.row) * Tile::bm;
    const int first_column = tile.column * Tile::bn;
    const int k_tiles = ceil_div(ceil_div(k, Tile::bk), slices);
    const int first_k = slice * k_tiles * Tile::bk;

    typename SharedTiles::Pair copies{CopyA(a, m, k, first_row, first_k, thread % SharedTiles::copiers),
                                      CopyB(b, k, n, first_k, first_column, thread % SharedTiles::copiers)};
    ThreadTile<Tile, SharedTiles, Fragments, Order::ffmas> thread_tile(shared, Outputs::row(thread),
                                                                       Outputs::column(thread));

    // Load, wait, multiply: tile after tile along the slice.
    constexpr int unrolled = Copy::width == 0 && Words == 1 ? Fragments::buffers : 0;  // rare: short code
    staged_loop<Copy::stages, Fragments::buffers, unrolled>(copies, thread_tile, shared, k_tiles);

    // Add up, store.
    auto& accumulator = reinterpret_cast<float(&)[outputs]>(thread_tile.accumulator);
    float* tile_sums = sums + Index(blockIdx.x) * slices * (Tile::threads * outputs);
    unsigned* counter = arrived + blockIdx.x;
    if (!take_sum_of_grid<Tile::threads>(accumulator, tile_sums, counter, slice, slices, thread)) return;
    Epilogue<false>::store<Tile, Words>(thread_tile, shared, c, m, n, first_row, first_column, alpha, beta);
}

template <class Tile, class Copy, class Fragments, class Order>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
gemm_split_k(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, float* sums,
             unsigned* arrived, int m, int n, int k, float alpha, float beta) {
    if constexpr (Copy::width != 0) {
        compute_slice<Tile, Copy, Fragments, Order, Copy::width>(a, b, c, sums, arrived, m, n, k, alpha,
                                                                 beta);
    } else if (n % 4 == 0 && k % 4 == 0) {
        compute_slice<Tile, Copy, Fragments, Order, 4>(a, b, c, sums, arrived, m, n, k, alpha, beta);
    } else {
        compute_slice<Tile, Copy, Fragments, Order, 1>(a, b, c, sums, arrived, m, n, k, alpha, beta);
    }
}
