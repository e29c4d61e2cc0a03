// C = alpha * A @ B + beta * C on Hopper's tensor cores, fp32 accumulators: 7_ping_pong with the tiles,
// clusters, raster and L2 hints of hopper_gemm, for all its types. There are always two consumers. A block
// without a cluster starts early (schedule/roles.cuh).
//
// Each consumer has a tile of its own, and they take turns: one multiplies while the other stores. What
// differs from hopper_gemm is which tiles and stages are a consumer's, and the turns.
//
// Element, MajorB, Ring, Schedule, Results: as for hopper_gemm; schedule/parameters.cuh. Tile: that of one
// consumer, so that its rows and columns count, but not which part of it is a consumer's.

#include "schedule/consumer.cuh"
#include "schedule/even_tiles.cuh"
#include "schedule/producer.cuh"
#include "schedule/roles.cuh"

// The turns of two consumers: a consumer hands over once it has started the last wgmma of its tile, so that
// the tensor cores go on without a gap. Made for a consumer's tile; call it after each step.
struct Turn {
    static constexpr int first_barrier = 3;  // a warpgroup's own barrier has its number
    int consumer, last_step;

    // Where another tile comes `before` it, waits for its consumer. Without that, waits for stages could be
    // more than a round of the ring ahead, and parity cannot tell such rounds apart.
    __device__ Turn(int consumer, int steps, bool before, bool after)
        : consumer(consumer), last_step(after ? steps - 1 : -1) {
        if (before) warpgroup_barrier<2>(first_barrier + consumer);
    }

    __device__ void operator()(int step) {
        if (step == last_step) warpgroup_arrive<2>(first_barrier + 1 - consumer);
    }
};

// A consumer: multiplies every second tile of its block and stores it.
template <class Tile, class Schedule, class Results, class Memory, class Value, class Scheduler>
__device__ inline void consume(Memory& shared, const MatrixC<Value>& c, const Scheduler& scheduler,
                               int cluster, int clusters, int rank, int steps, int consumer, int thread) {
    using Cluster = typename Schedule::Cluster;
    constexpr int fragments = Tile::rows / 64;
    const int lane = thread % 32;
    auto at = shared.ring.begin();
    int next_buffer = 0;
    at.advance(consumer * steps);  // past the other consumer's tile
    for (int tile = cluster + consumer * clusters; tile < scheduler.tiles();
         tile += 2 * clusters, at.advance(steps)) {
        Turn turn(consumer, steps, tile != cluster, tile + clusters < scheduler.tiles());
        if constexpr (Tile::narrow > 0) {
            if (scheduler.is_narrow(tile)) {
                float fewer[fragments][Tile::narrow / 2];
                clear(fewer);
                compute_tile<Cluster, Results>(fewer, shared, c, rank, steps, consumer, thread, 0, 0, lane,
                                               at, turn, next_buffer);
                continue;
            }
        }
        float accumulator[fragments][Tile::columns / 2];
        if constexpr (Tile::narrow > 0) clear(accumulator);  // not kept while the others are in use
        compute_tile<Cluster, Results>(accumulator, shared, c, rank, steps, consumer, thread, 0, 0, lane, at,
                                       turn, next_buffer);
    }
    if (thread == 0) wait_for_stores();
}

template <class Element, Major MajorB, class Tile, class Ring, class Schedule, class Results>
__global__ void __launch_bounds__((Tile::consumers + 1) * warpgroup_threads, 1)
hopper_ping_pong(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 const __grid_constant__ TensorMap map_c, ElementOfC<Element>* c, int m, int n, int k,
                 float alpha, float beta) {
    static_assert(Tile::consumers == 2, "they take turns");
    if (k == 0) return scale_c(c, m, n, beta);
    using Cluster = typename Schedule::Cluster;
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, Tile, Ring, Results>*>(memory);
    const TileSchedule<Tile, Schedule> scheduler(m, n, gridDim.x / Cluster::size);
    const int rank = Cluster::size > 1 ? cluster_rank() : 0;
    const int cluster = blockIdx.x / Cluster::size, clusters = gridDim.x / Cluster::size;
    const int steps = ceil_div(k, shared.a[0].depth);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads;

    // A stage is released by the four warps of the consumer to whose tile it belongs, in all blocks that
    // share it.
    set_up_ring<Ring, Cluster>(shared.ring, Cluster::partners * 4, map_a, map_b, map_c);
    if (warpgroup == 0) {
        become_producer<Tile, Ring>();
        if (one_of_warpgroup(thread)) {
            produce<Ring, Schedule>(shared, map_a, map_b, scheduler, cluster, clusters, rank, steps);
        }
    } else {
        become_consumer<Tile, Ring>();
        consume<Tile, Schedule, Results>(shared, MatrixC<ElementOfC<Element>>{map_c, c, m, n, alpha, beta},
                                         scheduler, cluster, clusters, rank, steps, warpgroup - 1, thread);
    }
    if constexpr (Cluster::size > 1) cluster_barrier();  // no block exits while others access its memory
}
