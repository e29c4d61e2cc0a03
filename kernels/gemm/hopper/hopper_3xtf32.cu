// C = alpha * A @ B + beta * C in fp32, on tensor cores with the accuracy of fp32; B is stored as N x K.
//
// The technique: 3xTF32 (cutlass, ootomo-yokota). The CUDA cores' FMA units limit an FP32 GEMM. Tensor cores
// multiply TF32 eight times as fast, with 11 of 24 bits. Each number is split, x = high + low, and three
// products take the place of one: low * high, high * low, high * high; low * low is below fp32's rounding.
// Tensor cores cut their sums, which adds up in a long sum of one sign: each Depth of K has a sum of its own,
// small products first, and the CUDA cores add it to the result, rounded to nearest.
//
// One warp of the first warpgroup copies tiles by TMA, the others write the low part of B beside it; its high
// part is B itself, as the tensor cores read it (mma/split_tf32.cuh). A consumer splits A on its way to
// registers, where wgmma reads it: from shared memory, A's parts would take the bandwidth that B needs.
// Consumers take turns: while one waits, adds and splits, the wgmma of the others keep the tensor cores busy.
// The sweep fp32_tensor measures it.
//
// BM, BN: block tile in elements, BM / 64 consumers; 32 of K at a time. Depth: of K in one turn, 16 or 32.
// Stages: tiles of A, B and B's low part in the ring. Raster: width of the threadblock swizzle in tiles, 0
// for row by row, or hilbert. Buffers: of 64 rows x 128 bytes for results on their way, per consumer.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "mma/three_products.cuh"
#include "schedule/ring.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"

template <int BM, int BN, int Stages, int Buffers>
struct Shared {
    OperandTile<Tf32, Major::k, BM> a[Stages];
    OperandTile<Tf32, Major::k, BN> b[Stages], b_low[Stages];
    TmaStoreRing<float, BN, Buffers> c[BM / 64];
    RingBarriers<Stages> ring;
    Mbarrier split[Stages];  // the low part of B is written
};

template <int BM, int BN, int Depth, int Stages, int Raster, int Buffers>
__global__ void __launch_bounds__((BM / 64 + 1) * warpgroup_threads, 1)
hopper_3xtf32(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
              const __grid_constant__ TensorMap map_c, float* c, int m, int n, int k, float alpha,
              float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    constexpr int consumers = BM / 64, splitters = warpgroup_threads - 32;
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<BM, BN, Stages, Buffers>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
    using Cluster = ClusterShape<1, 1>;
    const TileScheduler<BM, BN, Cluster, Raster> scheduler(m, n);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        prefetch(map_a);  // the descriptor, not the matrix
        prefetch(map_b);
        for (auto& split : shared.split) mbarrier_init(split, splitters / 32);  // an arrival per warp
        ring.init(consumers * 4);                                               // and a release
    }
    __syncthreads();

    RingPosition<Stages> at;  // goes on from tile to tile, on all sides alike
    if (warpgroup == 0) {
        shrink_registers<producer_registers<consumers>>();
        if (thread >= 32) {  // splits B
            const int tiles = ceil_div(scheduler.tiles() - blockIdx.x, gridDim.x);  // of this block
            for (int i = 0; i < tiles * steps; ++i, at.advance()) {
                mbarrier_wait(ring.full[at.stage], at.parity);  // and the consumers have left the stage
                write_low_parts<splitters>(shared.b[at.stage].byte, shared.b_low[at.stage].byte, thread - 32);
                fence_async_proxy();  // wgmma reads what threads have written
                __syncwarp();
                if (lane == 0) mbarrier_arrive(shared.split[at.stage]);
            }
        } else if (one_of_warpgroup(thread)) {  // the producer
            for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
                const TilePosition origin = scheduler.origin(tile, 0);
                for (int step = 0; step < steps; ++step, at.advance()) {
                    auto& a = shared.a[at.stage];
                    auto& b = shared.b[at.stage];
                    ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                    mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                    a.load(map_a, origin.row, step * depth, ring.full[at.stage]);
                    b.load(map_b, origin.column, step * depth, ring.full[at.stage]);
                }
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        constexpr int turn = consumers + 1;  // named barriers: first the consumers' own, then their turns
        const int consumer = warpgroup - 1, tile_row = consumer * 64;
        const int next_turn = turn + (consumer + 1) % consumers;
        float sum[1][BN / 2], part[BN / 2];
        const MatrixC<float> result{c, m, n, alpha, beta};
        if (next_turn == turn) warpgroup_arrive<2>(turn);  // the first one begins
        for (int tile = blockIdx.x, next_buffer = 0; tile < scheduler.tiles(); tile += gridDim.x) {
            clear(sum);
            for (int step = 0; step < steps; ++step, at.advance()) {
                mbarrier_wait(ring.full[at.stage], at.parity);
#pragma unroll
                for (int begin = 0; begin < 32; begin += Depth) {
                    SplitFragments<Depth / 8> fragments;
                    fragments.load(shared.a[at.stage], tile_row, begin / 8, thread);
                    if (begin == 0) mbarrier_wait(shared.split[at.stage], at.parity);
                    warpgroup_barrier<2>(turn + consumer);
                    wgmma_fence();
                    fragments.multiply(part, shared.b[at.stage], shared.b_low[at.stage], begin / 8);
                    wgmma_commit();
                    warpgroup_arrive<2>(next_turn);
                    wgmma_wait<0>();
                    if (begin + Depth == 32) release_stage<Cluster>(ring.empty[at.stage], 0, lane);
                    add_finished(sum[0], part);
                }
            }
            const TilePosition origin = scheduler.origin(tile, 0);
            const int row = origin.row + tile_row, column = origin.column;
            combine_accumulators(sum, result, row, column, thread);
            shared.c[consumer].store(sum, map_c, row, column, thread, warpgroup, next_buffer);
        }
        if (consumer == 0) warpgroup_barrier<2>(turn);  // the last turn of all
        if (thread == 0) wait_for_stores();
    }
}
