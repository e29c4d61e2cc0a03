// C = alpha * A @ B + beta * C on Hopper's tensor cores, fp32 accumulators, for a C of few tiles.
//
// The technique: split K (cutlass, cuda-guide). Where C has fewer tiles than the GPU has multiprocessors, one
// block per tile leaves multiprocessors idle. So the Slices blocks of a cluster compute the same tile, each
// over its own slice of K. Then the tile's columns are divided into one band per block. Each block receives
// the other blocks' accumulators of its band in its shared memory, adds them to its own, and stores the band
// (epilogue/slice_sum.cuh). In a block one warpgroup copies (the producer) and the others multiply (the
// consumers), as in hopper_gemm. The sweep hopper_small measures it.
//
// Element: __nv_bfloat16, __half, Tf32 (C is fp32), E4m3 (C is bf16). MajorB: Major::k where B is N x K,
// Major::mn where it is K x N (16-bit elements only). BlockTile, Ring: schedule/parameters.cuh. Raster:
// order of the tiles, row by row (0) or a threadblock swizzle of this width.

#include "epilogue/slice_sum.cuh"
#include "schedule/parameters.cuh"
#include "schedule/tile_scheduler.cuh"
#include "schedule/wgmma_loop.cuh"

template <class Element, Major MajorB, class BlockTile, class Ring>
struct Shared {
    OperandTile<Element, Major::k, BlockTile::rows> a[Ring::stages];
    OperandTile<Element, MajorB, BlockTile::columns> b[Ring::stages];
    RingBarriers<Ring::stages> ring;
};

template <class Element, Major MajorB, class BlockTile, class Ring, int Raster, int Slices>
__global__ void __launch_bounds__((BlockTile::consumers + 1) * warpgroup_threads, 1)
hopper_split_k(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               const __grid_constant__ TensorMap map_c, ElementOfC<Element>* c, int m, int n, int k,
               float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BlockTile, Ring>*>(memory);
    using Alone = ClusterShape<1, 1>;  // blocks share no operand
    const TileScheduler<BlockTile::rows, BlockTile::columns, Alone, Raster> scheduler(m, n);
    const TilePosition origin = scheduler.origin(blockIdx.x / Slices, 0);
    const int depth = shared.a[0].depth;
    const int rank = cluster_rank();
    const auto [first_step, steps] = steps_of_slice(ceil_div(k, depth), rank, Slices);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads;

    constexpr int start = BlockTile::consumers + 1;  // number of a barrier; the consumers have 1 to consumers
    RingPosition<Ring::stages> at;
    if (warpgroup == 0) {  // the producer
        if (thread == 0) {
            prefetch(map_a);
            prefetch(map_b);
            prefetch(map_c);  // a consumer stores once, at its end, where nothing would hide this load
            shared.ring.init(BlockTile::consumers * 4);  // a release per warp
        }
        __syncwarp();
        warpgroup_arrive<BlockTile::consumers + 1>(start);  // the consumers wait; this warp goes on
        BlockTile::shrink_producer();
        if (one_of_warpgroup(thread)) {
            for (int step = 0; step < steps; ++step, at.advance()) {
                auto& a = shared.a[at.stage];
                auto& b = shared.b[at.stage];
                Mbarrier& full = shared.ring.full[at.stage];
                const int first = (first_step + step) * depth;
                shared.ring.wait_until_empty(at);
                mbarrier_arrive_expect(full, a.bytes + b.bytes);
                a.template load<1, Ring::evict_a>(map_a, origin.row, first, full, 0, 1);
                b.template load<1, Ring::evict_b>(map_b, origin.column, first, full, 0, 1);
            }
        }
        cluster_barrier();  // barrier.cluster counts all threads: with the consumers' first,
        cluster_barrier();  // and with their second
    } else {  // a consumer
        BlockTile::grow_consumer();
        const int number = warpgroup - 1;
        Consumer consumer(shared, 0, steps, number, thread, BlockTile::row(number),
                          BlockTile::column(number));
        float accumulator[BlockTile::fragments][BlockTile::consumer_columns / 2];
        warpgroup_barrier<BlockTile::consumers + 1>(start);  // the ring's barriers are initialised
        if (steps > 0) {
            HandOver nobody{-1, 0};
            wgmma_loop<Alone>(accumulator, consumer, nobody);
            wgmma_wait_all(accumulator);
        } else {  // there are more slices than steps
            clear(accumulator);
        }
        using Sum = SliceSum<ElementOfC<Element>, BlockTile, Slices>;
        static_assert(sizeof(Sum) <= sizeof(shared.a) + sizeof(shared.b), "the ring has room for the sum");
        auto& sum = reinterpret_cast<Sum&>(shared.a);
        float own[BlockTile::fragments][Sum::band];
        // First: all wgmma have read the rings, whose place the sums of other blocks take. It must order
        // memory (.release): nothing else puts these reads before the stores from other blocks.
        cluster_barrier();
        sum.send(accumulator, own, rank, threadIdx.x - warpgroup_threads);
        cluster_barrier();  // second: all have received all; none accesses another block's memory after
        const MatrixC<ElementOfC<Element>> result{c, m, n, alpha, beta};
        sum.store(own, result, map_c, origin.row + consumer.row, origin.column + consumer.column, rank,
                  number, thread);
    }
}
