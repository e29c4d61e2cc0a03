// C = alpha * A @ B + beta * C on Hopper's tensor cores, fp32 accumulators: the techniques of the rungs
// 1_tma_wgmma to 6_tma_store in one kernel, each as a parameter, for the sweeps hopper_*.
//
// Beyond the rungs (cutlass, fast-cu) there are consumers side by side along N, clusters along both axes,
// tiles along a Hilbert curve, hints for the L2, and:
//   narrow       tiles of two widths, so that the last wave of tiles is a full one
//   stagger      the first consumer runs some steps ahead, so that one multiplies while the other stores
//   serpentine   every second wave goes backwards along K, through what the L2 still holds
//   early        the producer does not wait for the other warps (schedule/roles.cuh)
//
// Element: __nv_bfloat16, __half, Tf32 (C is fp32), E4m3 (C is bf16). MajorB: Major::k where B is N x K,
// Major::mn where it is K x N (16-bit elements only). BlockTile, Ring, Schedule, Results: in
// schedule/parameters.cuh.

#include "schedule/consumer.cuh"
#include "schedule/even_tiles.cuh"
#include "schedule/hand_over.cuh"
#include "schedule/producer.cuh"
#include "schedule/roles.cuh"

// A consumer: multiplies its part of one tile after the other, as the producer loads them, and stores it.
template <class BlockTile, class Schedule, class Results, class Memory, class Value, class Scheduler>
__device__ inline void consume(Memory& shared, const MatrixC<Value>& result, const TensorMap& map_c,
                               const Scheduler& scheduler, const BlockWork& work, int number, int thread) {
    using Cluster = typename Schedule::Cluster;
    Consumer<Memory> consumer(shared, work.rank, work.steps, number, thread, BlockTile::row(number),
                              BlockTile::column(number));
    // Without a tile nobody runs ahead, and nobody waits for it.
    Stagger<Schedule::stagger, BlockTile::consumers> hand_over(
        number, scheduler.tiles() > work.cluster ? work.steps : 0);
    for (int tile = work.cluster; tile < scheduler.tiles(); tile += work.clusters) {
        if constexpr (BlockTile::narrow > 0) {
            if (scheduler.is_narrow(tile)) {
                float fewer[BlockTile::fragments][BlockTile::narrow / 2];
                clear(fewer);
                compute_tile<Cluster, Results>(fewer, consumer, result, map_c, hand_over);
                continue;
            }
        }
        float accumulator[BlockTile::fragments][BlockTile::consumer_columns / 2];
        if constexpr (BlockTile::narrow > 0) clear(accumulator);  // not kept while the others are in use
        compute_tile<Cluster, Results>(accumulator, consumer, result, map_c, hand_over);
    }
    if (Results::by_tma && thread == 0) wait_for_stores();
}

template <class Element, Major MajorB, class BlockTile, class Ring, class Schedule, class Results>
__global__ void __launch_bounds__((BlockTile::consumers + 1) * warpgroup_threads, 1)
hopper_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
            const __grid_constant__ TensorMap map_c, ElementOfC<Element>* c, int m, int n, int k,
            float alpha, float beta) {
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

    // A stage is released by every warp of the consumers, in all blocks that share it.
    constexpr int releases = Cluster::partners * BlockTile::consumers * 4;
    set_up_ring<Ring, Cluster>(shared.ring, releases, map_a, map_b, map_c);
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
