// C = A @ B with scales by block, E4m3 operands, B stored as N x K: one tile of C per block.
// Rung 3: two partial sums, of which one is scaled while the other is multiplied.
//
// The technique: two partial sums a consumer, as hopper_fp8_promoted has them. In rung 2 a consumer
// multiplies, then scales, and the tensor cores go on only as far as the other consumer happens to be at the
// other of the two. Here its columns are four parts of 64. The wgmma of the next part are under way while the
// partial sums of this one are scaled and added, so that the tensor cores wait for nobody until a consumer
// waits for all its wgmma, every Chain steps (schedule/promotion_loop.cuh). A part needs registers for 64 of
// the columns only, so that the tile can be 256 wide with two consumers that have the producer's registers:
// its stages bring half as many bytes for A. To expect: near to the rate of the tensor cores, but for the
// tile's start, its end and its stores, which nothing covers yet.
//
// Value: of C, __nv_bfloat16 or float. Stages: tiles of A and B in the ring, with their scales. Chain: steps
// of K in which the next part is always under way.

#include "epilogue/warpgroup_store.cuh"
#include "mma/block_scales.cuh"
#include "schedule/hand_over.cuh"
#include "schedule/promotion_loop.cuh"

using Alone = ClusterShape<1, 1>;
constexpr int consumers = 2;
constexpr int rows = consumers * 64, columns = 256;  // of the block tile

template <int Stages>
struct Shared {
    OperandTile<E4m3, Major::k, rows> a[Stages];
    OperandTile<E4m3, Major::k, columns> b[Stages];
    ScaleTile<rows, columns> scales[Stages];
    RingBarriers<Stages> ring;
};

template <class Value, int Stages, int Chain>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
scaled_partial_sums(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                    const __grid_constant__ TensorMap map_scale_a,
                    const __grid_constant__ TensorMap map_scale_b, Value* c, int m, int n, int k) {
    alignas(1024) extern __shared__ unsigned char memory[];
    using Memory = Shared<Stages>;
    auto& shared = *reinterpret_cast<Memory*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
    const int first_row = blockIdx.y * rows, first_column = blockIdx.x * columns;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads;
    if (threadIdx.x == 0) {
        prefetch(map_a);
        prefetch(map_b);
        ring.init(consumers * 4);  // a release per warp of the consumers
    }
    __syncthreads();

    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();
        if (one_of_warpgroup(thread)) {
            RingPosition<Stages> at;
            for (int step = 0; step < steps; ++step, at.advance()) {
                auto& a = shared.a[at.stage];
                auto& b = shared.b[at.stage];
                auto& scales = shared.scales[at.stage];
                Mbarrier& full = ring.full[at.stage];
                ring.wait_until_empty(at);
                mbarrier_arrive_expect(full, a.bytes + b.bytes + scales.bytes);
                a.load(map_a, first_row, step * depth, full);
                b.load(map_b, first_column, step * depth, full);
                scales.load(map_scale_a, map_scale_b, first_row, first_column, step, full);
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        const int number = warpgroup - 1, tile_row = number * 64;
        float accumulator[1][columns / 2];
        clear(accumulator);
        Consumer<Memory> consumer(shared, 0, steps, number, thread, tile_row, 0);
        HandOver to_nobody(-1, 0);
        StageScales<ScaleTile<rows, columns>, 1> scales(shared.scales, tile_row, thread, first_column);
        promotion_loop<Alone, Promotion<1, columns / 64, 2, Chain>>(accumulator, consumer, to_nobody, scales);
        const MatrixC<Value> result{c, m, n, 1.0f, 0.0f};
        store_direct(accumulator, result, first_row + tile_row, first_column, thread);
    }
}
