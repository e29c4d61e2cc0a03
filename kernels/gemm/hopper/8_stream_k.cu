// Tried, does not pay at 4096; pays at 8192.
// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: several tiles of C per block.
// Rung 8 of docs/ladders/tensor-cores.md: stream-K. It changes rung 6b, which is 6_tma_store with clusters of
// one block.
//
// The technique: stream-K (stream-k, cutlass). At M = N = K = 4096 there are 512 tiles of 128 x 256 for 132
// blocks, so 16 of them have no tile in the fourth wave. Here each block first computes two whole tiles. The
// other 248 tiles have 64 steps of K each. Laid end to end, the steps are cut into 132 shares of 120 or 121,
// so that all blocks are busy to the end (schedule/stream_k.cuh): a gain of at most 3 % (512 / 132 = 3.88
// waves instead of 4), less the price, 128 KiB written and read for each of the 119 tiles that are cut. Most
// shares are the end of a tile, a whole tile and the beginning of another. A block works through its share
// backwards: the sums of a tile's beginning, which the next block needs, are written first, and nobody waits
// long (epilogue/partial_sums.cuh).
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN: tile
// of a block; BK is 64. Stages: of the ring. Raster: width of the threadblock swizzle in tiles, 0 for row by
// row, or hilbert. Buffers: of 64 rows x 128 bytes for results on their way, per consumer. sums: a float for
// each accumulator of each block; ready: a flag for each of its consumers, zero before and after.

#include "epilogue/partial_sums.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "schedule/stream_k.cuh"
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

template <class Element, Major MajorB, int BM, int BN, int Stages, int Raster, int Buffers>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
hopper_stream_k(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                const __grid_constant__ TensorMap map_c, Element* c, float* sums, unsigned* ready, int m,
                int n, int k, float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN, Stages, Buffers>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth), block = blockIdx.x;
    using Alone = ClusterShape<1, 1>;  // no multicast: each block loads its own tiles
    const TileScheduler<BM, BN, Alone, Raster> scheduler(m, n);
    const StreamK schedule(scheduler.tiles(), steps, gridDim.x);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        prefetch(map_a);  // the descriptor, not the matrix
        prefetch(map_b);
        ring.init(consumers * 4);  // a release per warp that reads its loads
    }
    __syncthreads();

    RingPosition<Stages> at;  // goes on from tile to tile, on both sides alike
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();
        if (one_of_warpgroup(thread)) {
            for (TileSteps work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
                const TilePosition origin = scheduler.origin(work.tile, 0);
                for (int step = 0; step < work.steps; ++step, at.advance()) {
                    auto& a = shared.a[at.stage];
                    auto& b = shared.b[at.stage];
                    const int first = (work.first + step) * depth;
                    ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                    mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                    a.load(map_a, origin.row, first, ring.full[at.stage]);
                    b.load(map_b, origin.column, first, ring.full[at.stage]);
                }
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        static_assert(BM == 64 * consumers, "a consumer has one block of accumulators, of 64 rows");
        constexpr int rows = BM / consumers, count = BN / 2, threads = warpgroup_threads;
        const int consumer = warpgroup - 1, tile_row = consumer * rows;
        // Where in `sums` and `ready` this consumer leaves its sums, and where that of the block before does.
        const int own = block * consumers + consumer, before = own - consumers;
        constexpr Index room = Index(threads) * count;  // floats of a consumer
        const auto barrier = [&] { warpgroup_barrier(warpgroup); };  // of the consumer's threads
        float accumulator[1][count];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        int next_buffer = 0;
        for (TileSteps work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
            int held = 0;
            for (int step = 0; step < work.steps; ++step, at.advance()) {
                mbarrier_wait(ring.full[at.stage], at.parity);
                wgmma_fence();
                wgmma_tiles(accumulator, shared.a[at.stage], shared.b[at.stage], tile_row, 0, step > 0);
                wgmma_commit();
                if (step > 0) {
                    wgmma_wait<1>();  // those of the step before
                    release_stage<Alone>(ring.empty[held], 0, lane);
                }
                held = at.stage;
            }
            wgmma_wait_all(accumulator);
            release_stage<Alone>(ring.empty[held], 0, lane);  // for the next tile
            if (!work.has_last_step(steps)) {  // the next block has the end of this tile
                leave_sums<threads>(accumulator[0], sums + own * room, ready + own, thread, barrier);
                continue;
            }
            if (!work.has_first_step()) {  // the block before had the beginning of this tile
                constexpr bool added = true;  // after wgmma: loaded sums to start from serialise them (C7515)
                take_sums<threads, added>(accumulator[0], sums + before * room, ready + before, thread,
                                          barrier);
            }
            // The whole tile is in these accumulators now.
            const TilePosition origin = scheduler.origin(work.tile, 0);
            const int row = origin.row + tile_row, column = origin.column;
            combine_accumulators(accumulator, result, row, column, thread);
            shared.c[consumer].store(accumulator, map_c, row, column, thread, warpgroup, next_buffer);
        }
        if (thread == 0) wait_for_stores();  // it started them
    }
}
