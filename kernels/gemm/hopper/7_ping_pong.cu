// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: several tiles of C per block.
// Rung 7 of docs/ladders/tensor-cores.md: ping-pong. It changes rung 6b, which is 6_tma_store with clusters
// of one block.
//
// The technique: ping-pong (cutlass). The two consumers of rung 6b share a tile, and both write its results
// to shared memory at the same time. Here each consumer has a tile of its own, and they take turns, so that
// one multiplies while the other stores. The producer loads their tiles one after the other, so each consumer
// skips the stages of the other's tile. A named barrier hands the turn over once the last wgmma of a tile has
// started, so that the tensor cores need not wait between two tiles. To gain is the time in which rung 6b
// stores and multiplies nothing: the smaller K, the larger its share. The price: a tile is that of one
// warpgroup, 128 x 128 by default instead of 128 x 256, and takes a third more bytes for the same
// multiplications. Its stages are smaller, so there are six instead of four.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN: tile
// of a consumer in elements; BK is 64. Stages: tiles of A and B in the ring. Raster: width of the threadblock
// swizzle in tiles, 0 for row by row, or hilbert. ClusterM: blocks of a cluster, 1 by default. Buffers: of 64
// rows x 128 bytes for results on their way, per consumer.

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
hopper_ping_pong(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
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
        ring.init(ClusterM * 4);  // a release per warp of the consumer whose tile it is
    }
    cluster_barrier();

    RingPosition<Stages> at;  // goes on from tile to tile
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
        constexpr int turn_barrier = consumers + 1;  // named barriers 3 and 4: 1 and 2 are the consumers' own
        const int consumer = warpgroup - 1, other = 1 - consumer;
        static_assert(BM % 64 == 0, "a wgmma has 64 rows");
        float accumulator[BM / 64][BN / 2];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        int next_buffer = 0;
        at.advance(consumer * steps);  // the second skips the stages of the first tile
        for (int tile = cluster + consumer * clusters; tile < scheduler.tiles();
             tile += consumers * clusters, at.advance(steps)) {  // skip the stages of the other's tile
            // Its turn: the other consumer has started the last wgmma of the tile before. A wait sees only a
            // phase's parity: before phase n - 1 has ended, a wait for phase n returns at once, since n - 2
            // has the same. The turn prevents that: by now every stage of the other's tile has been full.
            if (tile != cluster) warpgroup_barrier<2>(turn_barrier + consumer);
            int held = 0;
            for (int step = 0; step < steps; ++step, at.advance()) {
                mbarrier_wait(ring.full[at.stage], at.parity);
                wgmma_fence();
                wgmma_tiles(accumulator, shared.a[at.stage], shared.b[at.stage], 0, 0, step > 0);
                wgmma_commit();
                if (step > 0) {
                    wgmma_wait<1>();  // those of the step before
                    release_stage<Cluster>(ring.empty[held], rank, lane);
                }
                held = at.stage;
            }
            if (tile + clusters < scheduler.tiles()) warpgroup_arrive<2>(turn_barrier + other);
            wgmma_wait_all(accumulator);
            release_stage<Cluster>(ring.empty[held], rank, lane);  // the last one
            const TilePosition origin = scheduler.origin(tile, rank);
            const int row = origin.row, column = origin.column;
            combine_accumulators(accumulator, result, row, column, thread);
            shared.c[consumer].store(accumulator, map_c, row, column, thread, warpgroup, next_buffer);
        }
        if (thread == 0) wait_for_stores();
    }
    cluster_barrier();  // no block exits while others access its memory
}
