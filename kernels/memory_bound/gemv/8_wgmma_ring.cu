// Tried, does not pay with one row of A.
//
// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K, of 16 bits: tensor cores read a ring.
//
// File 6 has the bytes under way that the memory needs, and its threads too much to do with them. File 7 has
// little to do, and what is under way hangs on its threads' loads. Here one thread fills the ring by TMA, and
// wgmma (ptx-isa) takes both operands from there: no thread loads an element, and a warpgroup waits and then
// starts four instructions for 64 elements of K. As in file 7, rows of B take the place of rows of A, 64 a
// block. Rows of A are its 16 columns; TMA writes zeros for those that A does not have.
//
// Element: of 16 bits. Stages: of 64 elements of K, 10 KiB each.

#include "epilogue/combine.cuh"
#include "mma/operand_tile.cuh"
#include "ptx/warpgroup.cuh"
#include "schedule/ring.cuh"
#include "types/index.cuh"

template <class Element, int Stages>
__global__ void __launch_bounds__(2 * warpgroup_threads)
gemv_wgmma_ring(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, Element* c,
                int m, int n, int k, float alpha, float beta) {
    constexpr int rows_of_b = 64, rows_of_a = 16;
    struct Shared {
        OperandTile<Element, Major::k, rows_of_b> b[Stages];
        OperandTile<Element, Major::k, rows_of_a> a[Stages];
        RingBarriers<Stages> ring;
    };
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& [b, a, ring] = *reinterpret_cast<Shared*>(memory);
    const int first_of_b = blockIdx.x * rows_of_b, first_of_a = blockIdx.y * rows_of_a;
    const int depth = a[0].depth, steps = ceil_div(k, depth), thread = threadIdx.x % warpgroup_threads;
    if (threadIdx.x == 0) ring.init(warpgroup_threads / 32);  // each warp that multiplies hands a stage back
    __syncthreads();                                          // the barriers are there

    RingPosition<Stages> at;
    if (warp_uniform(threadIdx.x / warpgroup_threads) == 0) {  // the producer: one lane of its first warp
        if (!one_of_warpgroup(thread)) return;
        for (int step = 0; step < steps; ++step, at.advance()) {
            ring.wait_until_empty(at);
            mbarrier_arrive_expect(ring.full[at.stage], a[0].bytes + b[0].bytes);
            b[at.stage].load(map_b, first_of_b, step * depth, ring.full[at.stage]);
            a[at.stage].load(map_a, first_of_a, step * depth, ring.full[at.stage]);
        }
        return;
    }

    float sum[1][rows_of_a / 2];
    clear(sum);
    int held = 0;  // stage that the wgmma under way read
    for (int step = 0; step < steps; ++step, at.advance()) {
        ring.wait_until_full(at);
        wgmma_fence();
        wgmma_tiles(sum, b[at.stage], a[at.stage], 0, 0, 1);
        wgmma_commit();
        if (step > 0) {
            wgmma_wait<1>();  // those of the step before
            ring.release({held}, thread % 32);
        }
        held = at.stage;
    }
    wgmma_wait_all(sum);
#pragma unroll
    for (int i = 0; i < rows_of_a / 2; ++i) {
        const int of_b = first_of_b + accumulator_row(thread, i);
        const int of_a = first_of_a + accumulator_column(thread, i);
        const float one[1] = {sum[0][i]};
        if (of_a < m && of_b < n) store_combined(c + Index(of_a) * n + of_b, one, alpha, beta);
    }
}
