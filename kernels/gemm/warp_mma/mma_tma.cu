// C = alpha * A @ B + beta * C, row-major, on tensor cores by mma.sync: fp16, bf16 or tf32, C in the type of
// A and B.
//
// The technique: TMA for a kernel on mma.sync (ptx-isa). Every other instruction of a warp delays its
// mma.sync (an ldmatrix by a cycle). So one warp starts all copies, and the others only load fragments and
// multiply. A ring of mbarriers stands between them in place of __syncthreads. Blocks are persistent: copies
// for the next tile of C run ahead, and TMA stores the results of the last tile from shared memory while this
// one is multiplied. TMA's 128-byte swizzle is the XOR of mma_staged.
//
// Element: __half, __nv_bfloat16, or float for tf32. Accumulator: float, or __half. BM, BN: block tile, 128
// bytes deep; WM, WN: warp tile, in elements. Stages: tiles in shared memory. Strip: width of the threadblock
// swizzle in tiles, 0 for none.

#include "schedule/mma_ring.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"
#include "ptx/warpgroup.cuh"  // last: the cubin lists constants in the order of their headers

template <class Element, class Accumulator, int BM, int BN, int WM, int WN, int Stages, int Strip>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32 + warpgroup_threads, 1)
mma_tma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
        const __grid_constant__ TensorMap map_c, const Element* c, int m, int n, int k, float alpha,
        float beta) {
    using Ring = MmaRing<Element, BM, BN, WM, WN, Stages>;
    using Warp = typename Ring::template Warp<Accumulator>;
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Ring*>(memory);
    const TileScheduler<BM, BN, ClusterShape<1, 1>, Strip> scheduler(m, n);
    const int lane = threadIdx.x % 32;
    const int index = warp_uniform(threadIdx.x / 32);

    shared.start(map_a, map_b);

    constexpr int groups = Ring::warps / 4;  // warpgroups that multiply
    typename Ring::Position at;
    if (index >= Ring::warps) {
        if constexpr (groups > 1) shrink_registers<producer_registers<groups>>();
        if (threadIdx.x != Ring::warps * 32) return;
        for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
            const TilePosition origin = scheduler.origin(tile, 0);
            for (int first = 0; first < k; first += Ring::depth, at.advance()) {
                Ring::copy(at, memory, map_a, map_b, origin.row, origin.column, first);
            }
        }
        Ring::end(at, memory);
    } else {
        if constexpr (groups > 1) grow_registers<consumer_registers<groups>>();
        const int warp_row = index / (BN / WN) * WM, warp_column = index % (BN / WN) * WN;
        const unsigned tile_a = shared_address(shared.stage[0].a), tile_b = shared_address(shared.stage[0].b);
        Warp warp(tile_a, tile_b, warp_row, warp_column, lane);
        auto& shared_c = shared.c[index];
        for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
            warp.clear();
            Ring::template multiply<Accumulator>(at, memory, warp, k, lane);
            const TilePosition origin = scheduler.origin(tile, 0);
            const int here = hide_from_compiler(lane);  // for the loop over K to have its registers
            const int row = origin.row + warp_row, column = origin.column + warp_column;
            shared_c.template store<WM>(warp, map_c, c, m, n, row, column, here, alpha, beta);
        }
        if (lane == 0) wait_for_stores();
    }
}
