// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores, for thin and deep products: few rows, few
// columns (down to matrix times vector), or K much larger than both.
//
// Sliced K and split K (cutlass; sweep fp32_shapes). There are too few tiles of C for all multiprocessors,
// and in a tile of few outputs too little work for a block. So K is cut over the grid, over the blocks of a
// cluster, and over the warps of a block. A warp computes the block's whole tile over its share of K. Partial
// sums are added up through shared memory, the cluster's and global memory, always in the same order.
//
// A thin product waits for memory: each operand should be read once, as fast as memory delivers it. Each
// warp has a ring of its own in shared memory, filled by cp.async: Stages - 1 steps are on their way while
// one is multiplied, no registers hold what is on its way, and no barrier of the block stops a warp.
//
// Where K is 0 the accumulators stay zero, and C becomes beta * C.

#include "epilogue/cluster_sum.cuh"
#include "epilogue/combine_fp32.cuh"
#include "epilogue/grid_sum.cuh"
#include "epilogue/warp_sum.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared_memory.cuh"
#include "schedule/raster.cuh"
#include "simt/warp_tile.cuh"
#include "types/index.cuh"

// Tile: a WarpTile. InGrid: whether K is cut into gridDim.y slices, each with room for its tile in `sums`.
// InCluster: whether a slice is cut over the gridDim.z blocks of a cluster. arrived: for each tile of C a
// counter for each block of a cluster, zero before and after.
template <class Tile, int Warps, int Stages, int MinBlocks, bool InCluster, bool InGrid>
__global__ void __launch_bounds__(32 * Warps, MinBlocks)
gemm_sliced_k(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
              int m, int n, int k, float alpha, float beta, float* sums, unsigned* arrived) {
    using Partial = PartialTile<Tile::bm, Tile::bn>;
    extern __shared__ __align__(128) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    const TilePosition at = tile_position<0>(blockIdx.x, ceil_div(m, Tile::bm), ceil_div(n, Tile::bn));
    const Index first_row = Index(at.row) * Tile::bm;
    const int first_column = at.column * Tile::bn;

    // The block's slice of K, whose steps the warps take in turn: together they read long parts of A's rows.
    const int blocks = InCluster ? gridDim.z : 1, rank = InCluster ? blockIdx.z : 0;
    const int slices = InGrid ? gridDim.y : 1, slice = InGrid ? blockIdx.y : 0;
    const int steps = ceil_div(k, Tile::bk * Warps * blocks * slices);
    const int first_k = ((slice * blocks + rank) * steps * Warps + warp) * Tile::bk;

    char* ring = shared + warp * (Stages * Tile::bytes);
    const unsigned ring_address = shared_address(ring);
    const auto copy = [&](int stage, int step) {
        if (step < steps) {
            const int k0 = first_k + step * (Warps * Tile::bk);
            Tile::copy(ring_address + stage * Tile::bytes, a + first_row * k + k0,
                       b + Index(k0) * n + first_column, n, k, static_cast<int>(m - first_row),
                       n - first_column, k - k0, lane);
        }
        commit_copies();  // also behind the last step, so that groups count steps
    };

    // Load, wait, multiply: step after step of the warp's share.
    Tile tile(lane);
#pragma unroll 1
    for (int stage = 0; stage < Stages - 1; ++stage) copy(stage, stage);
    int reading = 0, writing = Stages - 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<Stages - 2>();
        __syncwarp();  // all lanes' copies of this step have landed, and all have read the step before
        copy(writing, step + Stages - 1);
        tile.multiply(ring + reading * Tile::bytes);
        reading = reading + 1 == Stages ? 0 : reading + 1;
        writing = writing + 1 == Stages ? 0 : writing + 1;
    }

    // Add up, store. The partial sums take the place of the rings.
    wait_for_copies<0>();
    __syncthreads();
    float* partial = reinterpret_cast<float*>(shared);
    tile.template store_shared<Partial::stride>(partial + warp * Partial::words);
    __syncthreads();
    const auto store = [&](int tile_row, int tile_column, const float (&sum)[4]) {
        const Index row = first_row + tile_row;
        const int column = first_column + tile_column;
        float* to = c + row * n + column;
        if (row >= m || column >= n) return;
        if (n % 4 == 0) {
            store_combined_fp32<4>(to, sum, alpha, beta);
        } else {
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                if (column + w < n) store_combined_fp32<1>(to + w, sum + w, alpha, beta);
            }
        }
    };
    float* tile_sums = sums + Index(blockIdx.x) * slices * (Tile::bm * Tile::bn);
    const auto store_slice = [&](int row, int column, const float (&sum)[4]) {
        if constexpr (!InGrid) return store(row, column, sum);
        float* to = tile_sums + (Index(slice) * Tile::bm + row) * Tile::bn + column;
        store_vector(to, Vector<float, 4>{{sum[0], sum[1], sum[2], sum[3]}});
    };
    for_each_sum_of_warps<Tile::bm, Tile::bn, Warps>(
        partial, threadIdx.x, [&](int row, int column, const Vector<float, 4>& sum) {
            if constexpr (InCluster) {
                store_vector(partial + row * Partial::stride + column, sum);  // read by this thread alone
            } else {
                store_slice(row, column, sum.value);
            }
        });
    if constexpr (InCluster) {
        cluster_barrier();
        for_each_sum_of_cluster<Tile::bm, Tile::bn, Partial::stride, 32 * Warps>(
            shared_address(shared), blocks, threadIdx.x, store_slice);
        cluster_barrier();  // no block leaves while others read its sums
    }
    if constexpr (InGrid) {
        if (!is_last_slice(arrived + blockIdx.x * blocks + rank, slices)) return;
        for_each_sum_of_grid<Tile::bm, Tile::bn, 32 * Warps>(tile_sums, slices, blocks, rank, threadIdx.x,
                                                             store);
    }
}
