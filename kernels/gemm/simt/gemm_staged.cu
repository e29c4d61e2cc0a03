// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: TM x TN outputs per thread as a sum of
// outer products in registers, operands from tiles in shared memory.
//
// The FP32 ladder of double-buffering, hip-gemm and gemm-practice in one kernel (sweep fp32_ladder). Every
// technique is a value of one of five policies (simt/policies.cuh), and a rung is a choice of their values:
//   Tile       of a block and of a thread
//   Copy       the way of the operands into shared memory, and how they lie there
//   Fragments  the way on into registers: which outputs are a thread's, and which values it holds
//   Order      of multiply-adds, of loads among them, and of tiles
//   Epilogue   whether the blocks of a cluster add up their sums (split K)
//
// Where K is 0 the accumulators stay zero, and C becomes beta * C.

#include "schedule/prefetch_loop.cuh"
#include "schedule/raster.cuh"
#include "schedule/staged_loop.cuh"
#include "simt/policies.cuh"
#include "simt/thread_tile.cuh"
#include "types/index.cuh"

// Words: of a global access.
template <class Tile, class Copy, class Fragments, class Order, class Epilogue, int Words>
__device__ inline void compute_tile(const float* a, const float* b, float* c, int m, int n, int k,
                                    float alpha, float beta) {
    using SharedTiles = typename Copy::template SharedTiles<Tile, Words>;
    using Outputs = typename Fragments::template Outputs<Tile>;
    using CopyA = typename SharedTiles::CopyA;
    using CopyB = typename SharedTiles::CopyB;
    extern __shared__ __align__(128) char shared[];

    const int thread = threadIdx.x;
    const TilePosition tile =
        tile_position<Order::strip>(blockIdx.x, ceil_div(m, Tile::bm), ceil_div(n, Tile::bn));
    const Index first_row = Index(tile.row) * Tile::bm;
    const int first_column = tile.column * Tile::bn;
    const int all_k_tiles = ceil_div(k, Tile::bk);
    const int k_tiles = Epilogue::sliced ? ceil_div(all_k_tiles, gridDim.z) : all_k_tiles;
    const int first_k = Epilogue::sliced ? blockIdx.z * k_tiles * Tile::bk : 0;

    typename SharedTiles::Pair copies{CopyA(a, m, k, first_row, first_k, thread % SharedTiles::copiers),
                                      CopyB(b, k, n, first_k, first_column, thread % SharedTiles::copiers)};
    ThreadTile<Tile, SharedTiles, Fragments, Order::ffmas> thread_tile(shared, Outputs::row(thread),
                                                                       Outputs::column(thread));

    // Load, wait, multiply: tile after tile along K.
    if constexpr (Copy::loader == Loader::staged) {
        prefetch_loop<Copy::stages, Fragments::buffers, Order::fetch, Order::deposits>(
            copies, thread_tile, shared, k_tiles);
    } else {
        constexpr int unrolled = Copy::width == 0 && Words == 1 ? Fragments::buffers : 0;  // rare: short code
        staged_loop<Copy::stages, Fragments::buffers, unrolled>(copies, thread_tile, shared, k_tiles);
    }

    // Store.
    Epilogue::template store<Tile, Words>(thread_tile, shared, c, m, n, first_row, first_column, alpha,
                                          beta);
}

template <class Tile, class Copy, class Fragments, class Order, class Epilogue>
__global__ void __launch_bounds__(Tile::threads, Tile::min_blocks)
gemm_staged(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
            int m, int n, int k, float alpha, float beta) {
    if constexpr (Copy::width != 0) {
        compute_tile<Tile, Copy, Fragments, Order, Epilogue, Copy::width>(a, b, c, m, n, k, alpha, beta);
    } else if (n % 4 == 0 && k % 4 == 0) {
        compute_tile<Tile, Copy, Fragments, Order, Epilogue, 4>(a, b, c, m, n, k, alpha, beta);
    } else {
        compute_tile<Tile, Copy, Fragments, Order, Epilogue, 1>(a, b, c, m, n, k, alpha, beta);
    }
}
