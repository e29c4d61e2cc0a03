// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: one tile of C per block.
// Rung 2 of docs/ladders/tensor-cores.md: warp specialisation.
//
// The technique: a ring of stages between two roles (cutlass, fast-cu). A warpgroup of its own, the producer,
// copies up to Stages tiles ahead, and the other, the consumer, multiplies. New over 1b are more steps ahead,
// no __syncthreads between steps, and one wgmma group always in flight. The price: four stages take 128 KiB
// of the 228 KiB of shared memory, so a multiprocessor holds one block instead of three, and nothing else
// covers this block's waits and its epilogue. So expect little over 1b: the ring is what rung 3 needs. Each
// stage has two mbarriers: `full`, when the bytes are there, and `empty`, when the four warps of the consumer
// have read them (schedule/ring.cuh).
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64. Stages: tiles of A and B in the ring.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/ring.cuh"
#include "types/index.cuh"

using Alone = ClusterShape<1, 1>;  // a block by itself, number 0 of its cluster; rung 5 has larger ones

template <class Element, Major MajorB, int BM, int BN, int Stages>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    RingBarriers<Stages> ring;
};

template <class Element, Major MajorB, int BM, int BN, int Stages>
__global__ void __launch_bounds__(2 * warpgroup_threads, 1)
hopper_ring(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* c,
            int m, int n, int k, float alpha, float beta) {
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
        ring.init(4);  // a release per warp of the consumer
    }
    __syncthreads();

    RingPosition<Stages> at;
    if (warpgroup == 0) {  // the producer
        if (one_of_warpgroup(thread)) {  // one lane of its first warp
            for (int step = 0; step < steps; ++step, at.advance()) {
                auto& a = shared.a[at.stage];
                auto& b = shared.b[at.stage];
                // Until the consumer has released it; returns at once on the first pass through the ring.
                ring.wait_until_empty(at);
                mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                a.load(map_a, first_row, step * depth, ring.full[at.stage]);
                b.load(map_b, first_column, step * depth, ring.full[at.stage]);
            }
        }
    } else {  // the consumer
        static_assert(BM % 64 == 0, "a wgmma has 64 rows");
        float accumulator[BM / 64][BN / 2];
        const MatrixC<Element> result{c, m, n, alpha, beta};
        int held = 0;  // stage read by the wgmma group in flight, not yet released
        for (int step = 0; step < steps; ++step, at.advance()) {
            mbarrier_wait(ring.full[at.stage], at.parity);
            wgmma_fence();
            wgmma_tiles(accumulator, shared.a[at.stage], shared.b[at.stage], 0, 0, step > 0);
            wgmma_commit();
            if (step > 0) {
                wgmma_wait<1>();  // those of the step before
                release_stage<Alone>(ring.empty[held], 0, lane);  // 0: its rank in the cluster
            }
            held = at.stage;
        }
        wgmma_wait_all(accumulator);  // the last stage stays held: no copy waits for it
        combine_accumulators(accumulator, result, first_row, first_column, thread);
        store_direct(accumulator, result, first_row, first_column, thread);
    }
}
