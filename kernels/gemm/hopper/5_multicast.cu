// Tried, does not pay.
// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: several tiles of C per block.
// Rung 5 of docs/ladders/tensor-cores.md: multicast.
//
// The technique: clusters with multicast (ptx-isa, fast-cu), so that the L2 delivers a tile of B once to
// several multiprocessors. ClusterM blocks form a cluster and take tiles below one another, which need the
// same tile of B. Each loads a part of it, and TMA writes that part to the shared memory of all. With two
// blocks that is a third fewer bytes from the L2 a block, which pays only where those are the limit. The
// price: a stage is empty only when the consumers of all blocks of the cluster have read it, so a producer
// waits for the other block's consumers too. The host launches the clusters.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64. Stages: tiles of A and B in the ring. Raster: width of the threadblock
// swizzle in tiles, 0 for row by row, or hilbert. ClusterM: blocks of a cluster, 2 by default. The scheduler
// numbers groups of ClusterM tiles; a block takes the one of its rank in the cluster.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"

constexpr int consumers = 2;

template <class Element, Major MajorB, int BM, int BN, int Stages>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    RingBarriers<Stages> ring;
};

template <class Element, Major MajorB, int BM, int BN, int Stages, int Raster, int ClusterM>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
hopper_multicast(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 Element* c, int m, int n, int k, float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN, Stages>*>(memory);
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
        // A release per consumer warp of every block of the cluster: all read what this block multicasts.
        ring.init(ClusterM * consumers * 4);
    }
    cluster_barrier();  // no block signals a barrier of another before it is initialised

    RingPosition<Stages> at;  // goes on from tile to tile, on both sides alike
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();  // of all four warps, as setmaxnreg demands
        if (one_of_warpgroup(thread)) {  // one lane of its first warp
            for (int group = cluster; group < scheduler.tiles(); group += clusters) {
                const TilePosition origin = scheduler.origin(group, rank);
                for (int step = 0; step < steps; ++step, at.advance()) {
                    auto& a = shared.a[at.stage];
                    auto& b = shared.b[at.stage];
                    ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                    // All of B: the parts that other blocks load count here too. They may come first, since
                    // the phase cannot end without this arrival.
                    mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                    a.load(map_a, origin.row, step * depth, ring.full[at.stage]);
                    // This block loads part `rank`; the mask has a bit for each block that receives it.
                    b.template load<ClusterM>(map_b, origin.column, step * depth, ring.full[at.stage], rank,
                                              Cluster::column_mask(rank));
                }
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        constexpr int rows = BM / consumers;
        static_assert(rows % 64 == 0, "a wgmma has 64 rows");
        const int tile_row = (warpgroup - 1) * rows;
        float accumulator[rows / 64][BN / 2];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        for (int group = cluster; group < scheduler.tiles(); group += clusters) {
            int held = 0;  // stage read by the wgmma group in flight, not yet released
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
            const TilePosition origin = scheduler.origin(group, rank);
            const int row = origin.row + tile_row, column = origin.column;
            combine_accumulators(accumulator, result, row, column, thread);
            store_direct(accumulator, result, row, column, thread);
        }
    }
    cluster_barrier();  // no block exits while others access its memory
}
