// C = alpha * A @ B + beta * C with promoted accumulation: E4m3 operands, bf16 result, B stored as N x K.
//
// The technique: the tensor cores keep about 14 bits of a sum of fp8 products (deepseek-v3), so that a long
// sum loses what is small against it. Here wgmma begins at zero every 128 of K, and CUDA cores add its
// partial sums in fp32 (mma/promotion.cuh). The price: 64 x 192 of C take the tensor cores 384 cycles for 128
// of K, and the additions take their consumer 96 cycles, in which it does not multiply. For the tensor cores
// not to wait, consumers are half a step apart (schedule/hand_over.cuh), so that one multiplies while the
// other adds; or a consumer has partial sums of two parts of its tile, and adds one while the other is
// multiplied.
// All else is as in hopper_gemm, which does not promote. The sweep hopper_fp8_promoted measures it.
//
// BlockTile, Ring, Schedule, Results: schedule/parameters.cuh. Promotion: schedule/promotion_loop.cuh.

#include "epilogue/warpgroup_store.cuh"
#include "schedule/hand_over.cuh"
#include "schedule/parameters.cuh"
#include "schedule/producer.cuh"
#include "schedule/promotion_loop.cuh"
#include "schedule/roles.cuh"

template <class BlockTile, class Ring, class Results>
struct Shared {
    OperandTile<E4m3, Major::k, BlockTile::rows> a[Ring::stages];
    OperandTile<E4m3, Major::k, BlockTile::columns> b[Ring::stages];
    TmaStoreRing<__nv_bfloat16, BlockTile::columns, Results::buffers> c[BlockTile::consumers];
    RingBarriers<Ring::stages> ring;
    TilePosition origin[Ring::stages];  // by the producer; consumers compute it here
};

// A consumer: multiplies and promotes its part of one tile after the other, and stores it.
template <class BlockTile, class Schedule, class Promotion, class Results, class Memory, class Scheduler>
__device__ inline void consume(Memory& shared, const MatrixC<__nv_bfloat16>& result,
                               const TensorMap& map_c, const Scheduler& scheduler, const BlockWork& work,
                               int number, int thread) {
    Consumer<Memory> consumer(shared, work.rank, work.steps, number, thread, BlockTile::row(number), 0);
    float accumulator[BlockTile::fragments][BlockTile::columns / 2];
    // Without a tile nobody runs ahead, and nobody waits for it.
    const int intervals =
        scheduler.tiles() > work.cluster ? ceil_div(work.steps, Promotion::interval) : 0;
    Stagger<Schedule::stagger, BlockTile::consumers> hand_over(number, intervals);
    for (int tile = work.cluster; tile < scheduler.tiles(); tile += work.clusters) {
        clear(accumulator);
        promotion_loop<typename Schedule::Cluster, Promotion>(accumulator, consumer, hand_over);
        const TilePosition origin = scheduler.origin(tile, work.rank);
        const int row = origin.row + consumer.row;
        combine_accumulators(accumulator, result, row, origin.column, thread);
        shared.c[number].template store<Results::evict>(
            accumulator, map_c, row, origin.column, thread, number + 1, consumer.next_buffer);
    }
    if (thread == 0) wait_for_stores();
}

template <class BlockTile, class Ring, class Schedule, class Promotion, class Results>
__global__ void __launch_bounds__((BlockTile::consumers + 1) * warpgroup_threads, 1)
hopper_fp8_promoted(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                    const __grid_constant__ TensorMap map_c, __nv_bfloat16* c, int m, int n, int k,
                    float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    using Cluster = typename Schedule::Cluster;
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<BlockTile, Ring, Results>*>(memory);
    const TileScheduler<BlockTile::rows, BlockTile::columns, Cluster, Schedule::raster> scheduler(m, n);
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
        const MatrixC<__nv_bfloat16> result{c, m, n, alpha, beta};
        consume<BlockTile, Schedule, Promotion, Results>(shared, result, map_c, scheduler, work,
                                                         warpgroup - 1, thread);
    }
    if constexpr (Cluster::size > 1) cluster_barrier();  // no block exits while others access its memory
}
