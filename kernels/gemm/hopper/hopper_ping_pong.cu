// C = alpha * A @ B + beta * C on Hopper's tensor cores, fp32 accumulators: 7_ping_pong with the tiles,
// clusters, raster and L2 hints of hopper_gemm, for all its types. There are always two consumers. A block
// without a cluster starts early (schedule/roles.cuh).
//
// Each consumer has a tile of its own, and they take turns: one multiplies while the other stores. What
// differs from hopper_gemm is which tiles and stages are a consumer's, and the turns.
//
// Element, MajorB, Ring, Schedule, Results: as for hopper_gemm; schedule/parameters.cuh. BlockTile: the tile
// of one consumer; BlockTile::row() and BlockTile::column() are not used.

#include "schedule/consumer.cuh"
#include "schedule/even_tiles.cuh"
#include "schedule/producer.cuh"
#include "schedule/roles.cuh"

// The turns of two consumers: each hands over once it has started the last wgmma of its tile, so that the
// tensor cores go on without a gap.
struct Turn : HandOver {
    static constexpr int first_barrier = 3;  // a warpgroup's own barrier has its number

    // Where another tile comes `before` a consumer's, waits for the other one. Without that, waits for stages
    // could be more than a pass through the ring ahead, and parity cannot tell such passes apart.
    __device__ Turn(int consumer, int steps, bool before, bool after)
        : HandOver(after ? steps - 1 : -1, first_barrier + 1 - consumer) {
        if (before) warpgroup_barrier<2>(first_barrier + consumer);
    }
};

// A consumer: multiplies every second tile of its block and stores it.
template <class BlockTile, class Schedule, class Results, class Memory, class Value, class Scheduler>
__device__ inline void consume(Memory& shared, const MatrixC<Value>& result, const TensorMap& map_c,
                               const Scheduler& scheduler, const BlockWork& work, int number, int thread) {
    using Cluster = typename Schedule::Cluster;
    constexpr int fragments = BlockTile::rows / 64;
    const int steps = work.steps;
    Consumer<Memory> consumer(shared, work.rank, steps, number, thread, 0, 0);  // with a whole tile
    consumer.at.advance(number * steps);  // past the other consumer's tile
    for (int tile = work.cluster + number * work.clusters; tile < scheduler.tiles();
         tile += 2 * work.clusters, consumer.at.advance(steps)) {
        Turn turn(number, steps, tile != work.cluster, tile + work.clusters < scheduler.tiles());
        if constexpr (BlockTile::narrow > 0) {
            if (scheduler.is_narrow(tile)) {
                float fewer[fragments][BlockTile::narrow / 2];
                clear(fewer);
                compute_tile<Cluster, Results>(fewer, consumer, result, map_c, turn);
                continue;
            }
        }
        float accumulator[fragments][BlockTile::columns / 2];
        if constexpr (BlockTile::narrow > 0) clear(accumulator);  // not kept while the others are in use
        compute_tile<Cluster, Results>(accumulator, consumer, result, map_c, turn);
    }
    if (thread == 0) wait_for_stores();
}

template <class Element, Major MajorB, class BlockTile, class Ring, class Schedule, class Results>
__global__ void __launch_bounds__((BlockTile::consumers + 1) * warpgroup_threads, 1)
hopper_ping_pong(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 const __grid_constant__ TensorMap map_c, ElementOfC<Element>* c, int m, int n, int k,
                 float alpha, float beta) {
    static_assert(BlockTile::consumers == 2, "they take turns");
    if (k == 0) return scale_c(c, m, n, beta);
    using Cluster = typename Schedule::Cluster;
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BlockTile, Ring, Results>*>(memory);
    const TileSchedule<BlockTile, Schedule> scheduler(m, n, gridDim.x / Cluster::size);
    const int rank = Cluster::size > 1 ? cluster_rank() : 0;
    const int cluster = blockIdx.x / Cluster::size, clusters = gridDim.x / Cluster::size;
    const BlockWork work{cluster, clusters, rank, ceil_div(k, shared.a[0].depth)};
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads;

    // A stage is released by the four warps of the consumer to whose tile it belongs, in all blocks that
    // share it.
    set_up_ring<Ring, Cluster>(shared.ring, Cluster::partners * 4, map_a, map_b, map_c);
    if (warpgroup == 0) {
        become_producer<BlockTile, Ring>();
        if (one_of_warpgroup(thread)) {
            produce<Ring, Schedule>(shared, map_a, map_b, scheduler, work);
        }
    } else {
        become_consumer<BlockTile, Ring>();
        const MatrixC<ElementOfC<Element>> result{c, m, n, alpha, beta};
        consume<BlockTile, Schedule, Results>(shared, result, map_c, scheduler, work, warpgroup - 1, thread);
    }
    if constexpr (Cluster::size > 1) cluster_barrier();  // no block exits while others access its memory
}
