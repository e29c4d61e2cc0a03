// C = alpha * A @ B + beta * C on tensor cores, in fp16, bf16 or tf32: several 256 x 128 tiles per block.
// Rung 13 of docs/ladders/tensor-cores.md: TMA.
//
// The technique: warps that multiply do nothing else (ptx-isa, TMA and mbarrier). Each other instruction
// of a warp delays its mma.sync, and in rung 12 all warps copy, meet at a barrier for each tile, and
// store. Now one thread starts all copies by TMA, whose 128-byte swizzle is the XOR of rung 8. Two
// mbarriers a stage replace __syncthreads: `full`, when its bytes are there, and `empty`, when all warps
// have read them. Blocks stay: copies for the next tile run ahead while TMA stores the sums of this one.
// With these roles other numbers are the best: a tile of 256 x 128, 64 deep, and strips of 16.
// The price: a warpgroup that only copies, and gives up its registers (setmaxnreg). The next ladder,
// kernels/gemm/hopper, keeps these roles and replaces mma.sync, which cannot use the full rate of Hopper's
// tensor cores: expect no kernel like this one to reach the libraries.
//
// Element: __half, __nv_bfloat16, or float for tf32; sums are fp32. Stages: pairs of tiles, 128 bytes
// deep. Strip: width of the threadblock swizzle in tiles, 0 for row by row. n and k: multiples of 16
// bytes.

#include "schedule/mma_ring.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"
#include "ptx/warpgroup.cuh"

constexpr int BM = 256, BN = 128, WM = 64, WN = 64;  // block tile and warp tile, in elements
constexpr int groups = BM / WM * (BN / WN) / 4;      // warpgroups that multiply

template <class Element, int Stages, int Strip>
__global__ void __launch_bounds__((groups + 1) * warpgroup_threads, 1)
mma_by_tma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c, const Element* c, int m, int n, int k, float alpha,
           float beta) {
    using Ring = MmaRing<Element, BM, BN, WM, WN, Stages>;  // stages with their barriers, and room for sums
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Ring*>(memory);
    const TileScheduler<BM, BN, ClusterShape<1, 1>, Strip> scheduler(m, n);
    const int lane = threadIdx.x % 32, index = warp_uniform(threadIdx.x / 32);
    shared.start(map_a, map_b);  // initialises the barriers

    typename Ring::Position at;  // goes on from tile to tile, on both sides alike
    if (index >= Ring::warps) {  // the producer
        shrink_registers<producer_registers<groups>>();
        if (threadIdx.x != Ring::warps * 32) return;
        for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
            const TilePosition origin = scheduler.origin(tile, 0);
            for (int first = 0; first < k; first += Ring::depth, at.advance()) {
                auto& stage = at.in(memory);
                mbarrier_wait(stage.empty, at.parity ^ 1);  // returns at once on the first pass
                mbarrier_arrive_expect(stage.full, stage.tile_bytes);
                tma_load(stage.a, map_a, origin.row, first, stage.full);
#pragma unroll
                for (int panel = 0; panel < Ring::panels; ++panel) {  // 128 bytes of a row of B each
                    tma_load(stage.b[panel], map_b, first, origin.column + panel * Ring::panel_columns,
                             stage.full);
                }
            }
        }
        Ring::end(at, memory);  // the warps wait for one stage after the last: it gets full without a copy
    } else {  // a warp that multiplies
        grow_registers<consumer_registers<groups>>();
        const int warp_row = index / (BN / WN) * WM, warp_column = index % (BN / WN) * WN;
        const unsigned tile_a = shared_address(shared.stage[0].a), tile_b = shared_address(shared.stage[0].b);
        typename Ring::template Warp<float> warp(tile_a, tile_b, warp_row, warp_column, lane);
        for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
            warp.clear();
            mbarrier_wait(at.in(memory).full, at.parity);
            warp.load(at.offset, 0, 0);
#pragma unroll 1
            for (int first = 0; first < k; first += Ring::depth) {
                Mbarrier& read = at.in(memory).empty;
#pragma unroll
                for (int step = 0; step < warp.steps; ++step) {
                    if (step == warp.steps - 1) {
                        at.advance();
                        mbarrier_wait(at.in(memory).full, at.parity);
                    }
                    warp.load(at.offset, (step + 1) % warp.steps, (step + 1) % 2);
                    warp.multiply(step % 2);
                }
                __syncwarp();  // all lanes have read the stage
                if (lane == 0) mbarrier_arrive(read);
            }
            const TilePosition origin = scheduler.origin(tile, 0);
            const int own = hide_from_compiler(lane);  // its addresses take no registers in the loop over K
            shared.c[index].template store<WM>(warp, map_c, c, m, n, origin.row + warp_row,
                                               origin.column + warp_column, own, alpha, beta);
        }
        if (lane == 0) wait_for_stores();
    }
}
