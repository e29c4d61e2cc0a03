// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: several tiles of C per block.
// Rung 6 of docs/ladders/tensor-cores.md: a store by TMA. Rung 6b is this file with clusters of one block.
//
// The technique: results leave by TMA (cutlass, fast-cu). In rung 5 a lane stores four bytes at a time, and
// four lanes together fill sixteen bytes of a row of C. Here results go through a ring of buffers in shared
// memory, 64 rows x 128 bytes each, and TMA copies them to C in whole lines. The store waits only for a free
// buffer: a consumer fills four a tile and has two, and multiplies the next tile while TMA still copies the
// last ones. For each buffer, `store` in epilogue/warpgroup_store.cuh does this:
//   thread 0 waits until TMA has read what the buffer held before (cp.async.bulk.wait_group.read);
//   all meet at a barrier, and stmatrix writes the results there, swizzled, so without bank conflicts;
//   fence.proxy.async shows these writes to TMA; all meet again;
//   thread 0 starts the copy to C (cp.async.bulk.tensor) and goes on.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64. Stages: tiles of A and B in the ring. Raster: width of the threadblock
// swizzle in tiles, 0 for row by row, or hilbert. ClusterM: blocks of a cluster. Buffers: of 64 rows x 128
// bytes for results on their way, per consumer.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"

constexpr int consumers = 2;

template <class Element, Major MajorB, int BM, int BN, int Stages, int Buffers>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    TmaStoreRing<Element, BN, Buffers> c[consumers];
    RingBarriers<Stages> ring;
};

template <class Element, Major MajorB, int BM, int BN, int Stages, int Raster, int ClusterM,
          int Buffers>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
hopper_tma_store(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 const __grid_constant__ TensorMap map_c, Element* c, int m, int n, int k, float alpha,
                 float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN, Stages, Buffers>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
    using Cluster = ClusterShape<ClusterM, 1>;
    const TileScheduler<BM, BN, Cluster, Raster> scheduler(m, n);
    const int rank = cluster_rank();
    const int cluster = blockIdx.x / ClusterM, clusters = gridDim.x / ClusterM;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        prefetch(map_a);  // the descriptor, not the matrix
        prefetch(map_b);
        ring.init(ClusterM * consumers * 4);  // a release per consumer warp of every block
    }
    cluster_barrier();

    RingPosition<Stages> at;  // goes on from tile to tile, on both sides alike
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();
        if (one_of_warpgroup(thread)) {
            for (int tile = cluster; tile < scheduler.tiles(); tile += clusters) {
                const TilePosition origin = scheduler.origin(tile, rank);
                for (int step = 0; step < steps; ++step, at.advance()) {
                    auto& a = shared.a[at.stage];
                    auto& b = shared.b[at.stage];
                    ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                    mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                    a.load(map_a, origin.row, step * depth, ring.full[at.stage]);
                    b.template load<ClusterM>(map_b, origin.column, step * depth, ring.full[at.stage], rank,
                                              Cluster::column_mask(rank));
                }
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        constexpr int rows = BM / consumers;
        static_assert(rows % 64 == 0, "a wgmma has 64 rows");
        const int consumer = warpgroup - 1, tile_row = consumer * rows;
        float accumulator[rows / 64][BN / 2];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        for (int tile = cluster, next_buffer = 0; tile < scheduler.tiles(); tile += clusters) {
            int held = 0;
            for (int step = 0; step < steps; ++step, at.advance()) {
                mbarrier_wait(ring.full[at.stage], at.parity);
                wgmma_fence();
                wgmma_tiles(accumulator, shared.a[at.stage], shared.b[at.stage], tile_row, 0, step > 0);
                wgmma_commit();
                if (step > 0) {
                    wgmma_wait<1>();  // those of the step before
                    release_stage<Cluster>(ring.empty[held], rank, lane);
                }
                held = at.stage;
            }
            wgmma_wait_all(accumulator);
            release_stage<Cluster>(ring.empty[held], rank, lane);  // for the next tile
            const TilePosition origin = scheduler.origin(tile, rank);
            const int row = origin.row + tile_row, column = origin.column;
            combine_accumulators(accumulator, result, row, column, thread);
            // `warpgroup`, 1 or 2, is also the number of store()'s named barrier; __syncthreads has 0.
            shared.c[consumer].store(accumulator, map_c, row, column, thread, warpgroup, next_buffer);
        }
        if (thread == 0) wait_for_stores();  // it started them
    }
    cluster_barrier();  // no block exits while others access its memory
}
