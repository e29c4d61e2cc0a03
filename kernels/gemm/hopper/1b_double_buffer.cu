// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: one tile of C per block.
// Rung 1b of docs/ladders/tensor-cores.md: a double buffer.
//
// The technique: copies run a step ahead. In rung 1 copies and wgmma of a block take turns. Two things
// change. There are two stages of tiles in shared memory, each with a barrier. And thread 0 starts the copies
// of the next step before the warpgroup multiplies this one: while the tensor cores read one stage, TMA fills
// the other. __syncthreads at the end of a step keeps TMA from a stage that is still being read. A
// multiprocessor still has room for three blocks (154 registers a thread, 65 KiB), so expect a gain though
// blocks overlap already. The copies get a warpgroup of their own in the next file, 2_ring.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "types/index.cuh"

constexpr int stages = 2;

template <class Element, Major MajorB, int BM, int BN>
struct Shared {
    OperandTile<Element, Major::k, BM> a[stages];
    OperandTile<Element, MajorB, BN> b[stages];
    Mbarrier full[stages];
};

template <class Element, Major MajorB, int BM, int BN>
__global__ void __launch_bounds__(warpgroup_threads, 1)
hopper_double_buffer(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                     Element* c, int m, int n, int k, float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN>*>(memory);
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const auto copy = [&](int step) {
        auto& a = shared.a[step % stages];
        auto& b = shared.b[step % stages];
        Mbarrier& full = shared.full[step % stages];
        mbarrier_arrive_expect(full, a.bytes + b.bytes);
        a.load(map_a, first_row, step * depth, full);
        b.load(map_b, first_column, step * depth, full);
    };
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) mbarrier_init(full, 1);
        fence_mbarrier_init();
        copy(0);
    }
    __syncthreads();

    static_assert(BM % 64 == 0, "a wgmma has 64 rows");
    float accumulator[BM / 64][BN / 2];
    for (int step = 0; step < steps; ++step) {
        const int stage = step % stages;
        if (threadIdx.x == 0 && step + 1 < steps) copy(step + 1);  // while this step is multiplied
        // The barrier of a stage ends a phase every second step: parities 0, 0, 1, 1, 0, 0, ...
        mbarrier_wait(shared.full[stage], step / stages % 2);
        wgmma_fence();
        wgmma_tiles(accumulator, shared.a[stage], shared.b[stage], 0, 0, step > 0);
        wgmma_commit();
        wgmma_wait_all(accumulator);
        __syncthreads();  // all wgmma have read the stage: the next copy may overwrite it
    }
    const MatrixC<Element> result{c, m, n, alpha, beta};
    combine_accumulators(accumulator, result, first_row, first_column, threadIdx.x);
    store_direct(accumulator, result, first_row, first_column, threadIdx.x);
}
