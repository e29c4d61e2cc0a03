// C = alpha * A @ B + beta * C on Hopper's tensor cores, fp32 accumulators, for a C of few tiles.
//
// The technique: split K (cutlass, cuda-guide). Where C has fewer tiles than the GPU has multiprocessors, the
// others would be idle. So the Slices blocks of a cluster multiply the same tile, each over a slice of K.
// Then they add up their accumulators through each other's shared memory, each block for its share of the
// rows: nothing goes through global memory, and the order of the additions is always the same. One warpgroup
// copies and the others multiply, as in hopper_gemm. The sweep hopper_small measures it.
//
// Element: __nv_bfloat16, __half, Tf32 (C is fp32), E4m3 (C is bf16). MajorB: Major::k where B is N x K,
// Major::mn where it is K x N (16-bit elements only). Tile, Ring: see schedule/parameters.cuh. Raster: order
// of the tiles, row by row (0) or a threadblock swizzle of this width.

#include "epilogue/slice_sum.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "schedule/parameters.cuh"
#include "schedule/tile_scheduler.cuh"
#include "schedule/wgmma_loop.cuh"

template <class Element, Major MajorB, class Tile, class Ring>
struct Shared {
    OperandTile<Element, Major::k, Tile::rows> a[Ring::stages];
    OperandTile<Element, MajorB, Tile::columns> b[Ring::stages];
    RingBarriers<Ring::stages> ring;
};

template <class Element, Major MajorB, class Tile, class Ring, int Raster, int Slices>
__global__ void __launch_bounds__((Tile::consumers + 1) * warpgroup_threads, 1)
hopper_split_k(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               ElementOfC<Element>* c, int m, int n, int k, float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, Tile, Ring>*>(memory);
    using Alone = ClusterShape<1, 1>;  // blocks share no operand
    const TileScheduler<Tile::rows, Tile::columns, Alone, Raster> scheduler(m, n);
    const TilePosition origin = scheduler.origin(blockIdx.x / Slices, 0);
    const int depth = shared.a[0].depth;
    const auto [first_step, steps] = steps_of_slice(ceil_div(k, depth), cluster_rank(), Slices);
    // The shuffle makes it uniform for the compiler.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
    const int thread = threadIdx.x % warpgroup_threads;

    if (threadIdx.x == 0) {
        prefetch(map_a);
        prefetch(map_b);
        shared.ring.init(Tile::consumers * 4);  // a release per warp
    }
    __syncthreads();
    RingPosition<Ring::stages> at;
    if (warpgroup == 0) {  // the producer
        Tile::shrink_producer();
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
        cluster_barrier();  // all accumulators lie in shared memory
    } else {  // a consumer
        Tile::grow_consumer();
        const int consumer = warpgroup - 1, row = Tile::row(consumer), column = Tile::column(consumer);
        float accumulator[Tile::fragments][Tile::consumer_columns / 2];
        if (steps > 0) {
            wgmma_loop<Alone>(accumulator, shared.a, shared.b, shared.ring, at, steps, row, column, 0,
                              thread % 32, [](int) {});
            wgmma_wait<0>();
        } else {  // there are more slices than steps
            clear(accumulator);
        }
        warpgroup_barrier<Tile::consumers>(1);  // all wgmma have read the ring, whose place the sums take
        auto& sums = reinterpret_cast<SliceSum<Tile::rows, Tile::columns>&>(shared.a);
        sums.store_shared(accumulator, row, column, thread);
        cluster_barrier();  // all accumulators lie in shared memory
        sums.template store<Tile::consumers * warpgroup_threads>(c, m, n, origin, Slices, alpha, beta,
                                                                 threadIdx.x - warpgroup_threads);
    }
    cluster_barrier();  // no block exits while others read its memory
}
