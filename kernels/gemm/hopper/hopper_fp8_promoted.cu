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
// Tile, Ring, Schedule, Results: schedule/parameters.cuh. Promotion: mma/promotion.cuh.

#include "epilogue/warpgroup_store.cuh"
#include "mma/promotion.cuh"
#include "schedule/parameters.cuh"
#include "schedule/producer.cuh"
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
    using Cluster = typename Schedule::Cluster;
    constexpr int interval = Promotion::interval, chain = Promotion::chain, partials = Promotion::partials;
    constexpr int parts = Tile::fragments * Promotion::split, columns = Tile::columns / Promotion::split;
    const int tile_row = Tile::row(consumer), lane = thread % 32;
    auto& ring = shared.ring;
    using Position = decltype(ring.begin());
    float accumulator[Tile::fragments][Tile::columns / 2], partial[partials][1][columns / 2];

    // Starts the wgmma of a part for `count` stages from `at` on, with partial sums that begin at zero.
    auto multiply = [&](int part, int sum, Position at, int count) {
        const int row = tile_row + part / Promotion::split * 64, column = part % Promotion::split * columns;
        for (int i = 0; i < count; ++i, at.advance()) {
            if (part == 0) mbarrier_wait(ring.full[at.stage], at.parity);
            wgmma_fence();
            wgmma_tiles(partial[sum], shared.a[at.stage], shared.b[at.stage], row, column, i > 0);
        }
        wgmma_commit();
    };
    auto release = [&](Position at, int count) {
        for (int i = 0; i < count; ++i, at.advance()) {
            release_stage<Cluster>(ring.empty[at.stage], rank, lane);
        }
    };

    Position at = ring.begin();
    int next_buffer = 0;
    Stagger<Schedule::stagger, Tile::consumers> stagger(
        consumer, cluster < scheduler.tiles() ? ceil_div(steps, interval) : 0);
    // `intervals` of `count` stages each, number `first` of the tile and on, part by part. With two partial
    // sums the next part is under way while one is added, but not from one round of a loop to the next: there
    // the compiler would serialise all wgmma (C7514).
    auto multiply_and_promote = [&](int first, int intervals, int count) {
        multiply(0, 0, at, count);
#pragma unroll
        for (int i = 0; i < intervals * parts; ++i) {
            const int part = i % parts;
            const bool last = part == parts - 1, more = i + 1 < intervals * parts;
            Position next = at;  // of the next part
            if (last) next.advance(count);
            if (partials == 2 && more) {
                multiply((i + 1) % parts, (i + 1) % 2, next, count);
                wgmma_wait<1>();
            } else {
                wgmma_wait<0>();
            }
            if (part == 0) stagger(first + i / parts);
            if (last) release(at, count);
            promote(accumulator, part, partial[i % partials]);
            if (partials == 1 && more) multiply((i + 1) % parts, 0, next, count);
            at = next;
        }
    };
    for (int tile = cluster; tile < scheduler.tiles(); tile += clusters) {
        clear(accumulator);
        int step = 0;
        if constexpr (chain > 1) {
            for (; step + chain <= steps; step += chain) multiply_and_promote(step, chain, 1);
        }
        for (; step < steps; step += interval) {
            multiply_and_promote(step / interval, 1, interval == 1 ? 1 : const_min(interval, steps - step));
        }
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
    // The shuffle makes it uniform for the compiler.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
    const int thread = threadIdx.x % warpgroup_threads;
    if (threadIdx.x == 0) {
        prefetch(map_a);
        prefetch(map_b);
        shared.ring.init(Cluster::partners * Tile::consumers * 4);  // a release per warp
    }
    block_or_cluster_barrier<(Cluster::size > 1)>();
    if (warpgroup == 0) {
        Tile::shrink_producer();
        if (one_of_warpgroup(thread)) {
            produce<Ring, Schedule>(shared, map_a, map_b, scheduler, cluster, clusters, rank, steps);
        }
    } else {
        Tile::grow_consumer();
        consume<Tile, Schedule, Promotion, Results>(
            shared, MatrixC<__nv_bfloat16>{map_c, c, m, n, alpha, beta}, scheduler, cluster, clusters, rank,
            steps, warpgroup - 1, thread);
    }
    if constexpr (Cluster::size > 1) cluster_barrier();  // no block exits while others access its memory
}
