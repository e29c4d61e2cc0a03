// C = alpha * A @ B + beta * C on Hopper's tensor cores, fp32 accumulators: one warpgroup copies, the others
// multiply.
//
// The techniques, each a parameter, after cutlass and fast-cu:
//   Stages         a ring of tiles between the copying thread and the consumers: copies run ahead of the
//                  wgmma
//   Consumers      warpgroups that share a tile, along M or (ConsumersN) N, and with Reallocate the copier's
//                  registers
//   Raster         persistent blocks take tiles in this order: row by row, threadblock swizzle or Hilbert
//                  curve
//   Cluster        blocks load operands that they share once (multicast)
//   Store          Epilogue::staged: TMA stores results from shared memory while the next tile begins
//   Stagger        the first consumer runs some steps ahead, so that one multiplies while the other stores
//   Serpentine     every second round goes backwards along K, through what the L2 still holds (Evict: drops
//                  first)
//
// Element: __nv_bfloat16, __half, Tf32 (C is fp32), E4m3 (C is bf16). MajorB: Major::k where B is N x K,
// Major::mn where it is K x N (16-bit elements only). BM, BN: block tile, 128 bytes of K deep. StagesC:
// buffers of 64 rows x 128 bytes per consumer for results on their way.

#include "epilogue/combine.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/producer.cuh"
#include "schedule/tile_scheduler.cuh"
#include "schedule/wgmma_loop.cuh"

template <class Element, Major MajorB, int BM, int BN, int Stages, int Consumers, int ConsumersN, int StagesC>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    TmaStoreRing<ElementOfC<Element>, BN / ConsumersN, StagesC> c[Consumers];
    RingBarriers<Stages> ring;
    TilePosition origin[Stages];  // of the tile that a stage belongs to
};

template <class Element, Major MajorB, int BM, int BN, int Stages, int Consumers, int ConsumersN,
          bool Reallocate, class Cluster, int Raster, bool Serpentine, int Stagger, Epilogue Store,
          int StagesC, Evict EvictA, Evict EvictB, Evict EvictC>
__global__ void __launch_bounds__((Consumers + 1) * warpgroup_threads, 1)
hopper_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
            const __grid_constant__ TensorMap map_c, ElementOfC<Element>* c, int m, int n, int k,
            float alpha, float beta) {
    alignas(1024) extern __shared__ unsigned char memory[];
    using Memory = Shared<Element, MajorB, BM, BN, Stages, Consumers, ConsumersN, StagesC>;
    auto& shared = *reinterpret_cast<Memory*>(memory);
    auto& ring = shared.ring;
    const TileScheduler<BM, BN, Cluster, Raster> scheduler(m, n);
    const int rank = Cluster::size > 1 ? cluster_rank() : 0;
    const int cluster = blockIdx.x / Cluster::size, clusters = gridDim.x / Cluster::size;
    const int steps = ceil_div(k, shared.a[0].depth);
    // The shuffle makes it uniform for the compiler.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
    const int thread = threadIdx.x % warpgroup_threads;

    if (threadIdx.x == 0) {
        prefetch(map_a);
        prefetch(map_b);
        ring.init(Cluster::partners * Consumers * 4);  // a release per warp
    }
    constexpr bool in_cluster = Cluster::size > 1;
    block_or_cluster_barrier<in_cluster>();
    if (warpgroup == 0) {
        if constexpr (Reallocate) shrink_registers<producer_registers<Consumers>>();
        if (one_of_warpgroup(thread)) {
            produce<Cluster, Serpentine, EvictA, EvictB>(shared, map_a, map_b, scheduler, cluster, clusters,
                                                         rank, steps);
        }
    } else {
        if constexpr (Reallocate) grow_registers<consumer_registers<Consumers>>();
        // Of a consumer: fragments of 64 rows, and columns.
        constexpr int fragments = BM / 64 / (Consumers / ConsumersN), columns = BN / ConsumersN;
        const int consumer = warpgroup - 1;
        const int tile_row = consumer / ConsumersN * fragments * 64;
        const int tile_column = consumer % ConsumersN * columns;
        float accumulator[fragments][columns / 2];
        RingPosition<Stages> at;
        constexpr int all_consumers = Consumers + 1;  // barriers: a warpgroup's own has its number
        int ahead = Stagger > 0 && consumer + 1 < Consumers ? const_min(Stagger, steps) - 1 : -1;
        if (Stagger > 0 && consumer > 0) warpgroup_barrier<2>(all_consumers + consumer);
        for (int tile = cluster, next_stage_c = 0; tile < scheduler.tiles(); tile += clusters) {
            const auto after_step = [&](int step) {
                if (Stagger > 0 && step == ahead) {  // in the first tile; later tiles keep the distance
                    warpgroup_arrive<2>(all_consumers + consumer + 1);
                    ahead = -1;
                }
            };
            const int held = wgmma_loop<Cluster>(accumulator, shared.a, shared.b, ring, at, steps, tile_row,
                                                 tile_column, rank, thread % 32, after_step);
            const TilePosition origin = read_by_lane(rank, shared.origin[held], thread % 32);
            wgmma_wait<0>();
            release_stage<Cluster>(ring.empty[held], rank, thread % 32);
            const int row = origin.row + tile_row, column = origin.column + tile_column;
            combine_accumulators(accumulator, c, m, n, row, column, alpha, beta, thread);
            if constexpr (Store == Epilogue::staged) {
                shared.c[consumer].template store<EvictC>(accumulator, map_c, row, column, thread,
                                                          warpgroup, next_stage_c);
            } else {
                store_direct(accumulator, c, m, n, row, column, thread);
            }
        }
        if (Store == Epilogue::staged && thread == 0) wait_for_stores();
    }
    if constexpr (in_cluster) cluster_barrier();  // no block exits while others access its memory
}
