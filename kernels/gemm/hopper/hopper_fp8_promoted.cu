// C = alpha * A @ B + beta * C with promoted accumulation: E4m3 operands, bf16 result, B stored as N x K.
//
// The technique: the tensor cores keep about 14 bits of a sum of fp8 products (deepseek-v3), so that a long
// sum loses what is small against it. Here wgmma begins at zero every 128 of K, and CUDA cores add its
// partial sums in fp32 (mma/promotion.cuh). The price: 64 x 192 of C take the tensor cores 384 cycles for 128
// of K, and the additions take their consumer 96 cycles, in which it does not multiply. For the tensor cores
// not to wait, consumers are half a step apart (schedule/stagger.cuh), so that one multiplies while the other
// adds; or a consumer has partial sums of two parts of its tile, and adds one while the other is multiplied.
// All else is as in hopper_gemm, which does not promote. The sweep hopper_fp8_promoted measures it.
//
// Tile, Ring, Schedule, Results: schedule/parameters.cuh. Promotion: schedule/promotion_loop.cuh.

#include "epilogue/warpgroup_store.cuh"
#include "schedule/parameters.cuh"
#include "schedule/producer.cuh"
#include "schedule/promotion_loop.cuh"
#include "schedule/roles.cuh"
#include "schedule/stagger.cuh"

template <class Tile, class Ring, class Results>
struct Shared {
    OperandTile<E4m3, Major::k, Tile::rows> a[Ring::stages];
    OperandTile<E4m3, Major::k, Tile::columns> b[Ring::stages];
    TmaStoreRing<__nv_bfloat16, Tile::columns, Results::buffers> c[Tile::consumers];
    RingBarriers<Ring::stages> ring;
    TilePosition origin[Ring::stages];  // by the producer; consumers compute it here
};

// A consumer: multiplies and promotes its part of one tile after the other, and stores it.
template <class Tile, class Schedule, class Promotion, class Results, class Memory, class Scheduler>
__device__ inline void consume(Memory& shared, const MatrixC<__nv_bfloat16>& c, const Scheduler& scheduler,
                               int cluster, int clusters, int rank, int steps, int consumer, int thread) {
    const int tile_row = Tile::row(consumer), lane = thread % 32;
    float accumulator[Tile::fragments][Tile::columns / 2];
    auto at = shared.ring.begin();
    int next_buffer = 0;
    // Without a tile nobody runs ahead, and nobody waits for it.
    const int intervals = cluster < scheduler.tiles() ? ceil_div(steps, Promotion::interval) : 0;
    Stagger<Schedule::stagger, Tile::consumers> stagger(consumer, intervals);
    for (int tile = cluster; tile < scheduler.tiles(); tile += clusters) {
        clear(accumulator);
        promotion_loop<typename Schedule::Cluster, Promotion>(
            accumulator, shared.a, shared.b, shared.ring, at, steps, tile_row, rank, lane, stagger);
        const TilePosition origin = scheduler.origin(tile, rank);
        const int row = origin.row + tile_row;
        combine_accumulators(accumulator, c.c, c.m, c.n, row, origin.column, c.alpha, c.beta, thread);
        shared.c[consumer].template store<Results::evict>(accumulator, c.map, row, origin.column, thread,
                                                          consumer + 1, next_buffer);
    }
    if (thread == 0) wait_for_stores();
}

template <class Tile, class Ring, class Schedule, class Promotion, class Results>
__global__ void __launch_bounds__((Tile::consumers + 1) * warpgroup_threads, 1)
hopper_fp8_promoted(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                    const __grid_constant__ TensorMap map_c, __nv_bfloat16* c, int m, int n, int k,
                    float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    using Cluster = typename Schedule::Cluster;
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<Tile, Ring, Results>*>(memory);
    const TileScheduler<Tile::rows, Tile::columns, Cluster, Schedule::raster> scheduler(m, n);
    const int rank = Cluster::size > 1 ? cluster_rank() : 0;
    const int cluster = blockIdx.x / Cluster::size, clusters = gridDim.x / Cluster::size;
    const int steps = ceil_div(k, shared.a[0].depth);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads;
    // A stage is released by every warp of the consumers, in all blocks that share it.
    set_up_ring<Ring, Cluster>(shared.ring, Cluster::partners * Tile::consumers * 4, map_a, map_b, map_c);
    if (warpgroup == 0) {
        become_producer<Tile, Ring>();
        if (one_of_warpgroup(thread)) {
            produce<Ring, Schedule>(shared, map_a, map_b, scheduler, cluster, clusters, rank, steps);
        }
    } else {
        become_consumer<Tile, Ring>();
        consume<Tile, Schedule, Promotion, Results>(
            shared, MatrixC<__nv_bfloat16>{map_c, c, m, n, alpha, beta}, scheduler, cluster, clusters, rank,
            steps, warpgroup - 1, thread);
    }
    if constexpr (Cluster::size > 1) cluster_barrier();  // no block exits while others access its memory
}
