// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: one tile of C per block.
// Rung 3 of docs/ladders/tensor-cores.md: a wide tile.
//
// The technique: a tile of 128 x 256 in place of 128 x 128 (cutlass, fast-cu; by `bn: 256` in the yaml). For
// the same multiplications blocks load a quarter fewer bytes of A and B from the L2: up to a third more speed
// where these bytes are the limit, and less where waits are. One warpgroup would need 256 accumulators a
// thread, more than the 255 registers that a thread can have. So two consumers multiply 64 rows each, and the
// producer gives registers up to them (setmaxnreg, ptx-isa): a thread of it keeps 40, one of a consumer gets
// 232. Two consumers also issue wgmma in turn, so that one's wait is covered by what the other has started.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64. Stages: tiles of A and B in the ring.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "types/index.cuh"

using Alone = ClusterShape<1, 1>;  // a block by itself, number 0 of its cluster; rung 5 has larger ones
constexpr int consumers = 2;

template <class Element, Major MajorB, int BM, int BN, int Stages>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    RingBarriers<Stages> ring;
};

template <class Element, Major MajorB, int BM, int BN, int Stages>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
hopper_wide_tile(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 Element* c, int m, int n, int k, float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN, Stages>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        prefetch(map_a);  // the descriptor, not the matrix
        prefetch(map_b);
        ring.init(consumers * 4);  // a release per warp of the consumers
    }
    __syncthreads();

    RingPosition<Stages> at;
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();  // of all four warps, as setmaxnreg demands
        if (one_of_warpgroup(thread)) {  // one lane of its first warp
            for (int step = 0; step < steps; ++step, at.advance()) {
                auto& a = shared.a[at.stage];
                auto& b = shared.b[at.stage];
                ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                a.load(map_a, first_row, step * depth, ring.full[at.stage]);
                b.load(map_b, first_column, step * depth, ring.full[at.stage]);
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        constexpr int rows = BM / consumers;
        static_assert(rows % 64 == 0, "a wgmma has 64 rows");
        const int tile_row = (warpgroup - 1) * rows, row = first_row + tile_row;
        float accumulator[rows / 64][BN / 2];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        int held = 0;  // stage read by the wgmma group in flight, not yet released
        for (int step = 0; step < steps; ++step, at.advance()) {
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
        wgmma_wait_all(accumulator);  // the last stage stays held: no copy waits for it
        combine_accumulators(accumulator, result, row, first_column, thread);
        store_direct(accumulator, result, row, first_column, thread);
    }
}
