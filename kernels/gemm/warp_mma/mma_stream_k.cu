// Tried, does not pay at 4096; pays at 8192.
// C = alpha * A @ B + beta * C, row-major, on tensor cores by mma.sync: fp16, bf16 or tf32, C in the type of
// A and B. mma_tma with some tiles cut along K.
//
// The technique: stream-K (stream-k, cutlass). At M = N = K = 8192 there are 2048 tiles of 256 x 128 for 132
// multiprocessors: 15.5 waves, which take the time of 16. Now the last two waves are cut along K into 132
// equal shares (schedule/stream_k.cuh). Where two blocks share a tile, each warp of the first leaves its sums
// in global memory, and the same warp of the second adds them (epilogue/partial_sums.cuh): no warp waits for
// another one of its block. The sweeps tensor_ladder_bf16, _fp16 and _tf32 measure it.
//
// Element: __half, __nv_bfloat16, or float for tf32. BM, BN: block tile, 128 bytes deep; WM, WN: warp tile,
// in elements. Stages: tiles in shared memory. Strip: width of the threadblock swizzle in tiles, 0 for none.
// sums: a float for each accumulator of each block; ready: a flag for each multiplying warp of each block,
// zero before and after. Where K is 0 the accumulators stay zero, and C becomes beta * C.

#include "epilogue/partial_sums.cuh"
#include "schedule/mma_ring.cuh"
#include "schedule/stream_k.cuh"
#include "schedule/tile_scheduler.cuh"
#include "types/index.cuh"
#include "ptx/warpgroup.cuh"  // last: the cubin lists constants in the order of their headers

template <class Element, int BM, int BN, int WM, int WN, int Stages, int Strip>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32 + warpgroup_threads, 1)
mma_stream_k(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
             const __grid_constant__ TensorMap map_c, const Element* c, float* sums, unsigned* ready, int m,
             int n, int k, float alpha, float beta) {
    using Ring = MmaRing<Element, BM, BN, WM, WN, Stages>;
    using Warp = typename Ring::template Warp<float>;
    alignas(1024) extern __shared__ unsigned char memory[];
    auto& shared = *reinterpret_cast<Ring*>(memory);
    const TileScheduler<BM, BN, ClusterShape<1, 1>, Strip> scheduler(m, n);
    const int steps = const_max(1, ceil_div(k, Ring::depth)), block = blockIdx.x;
    const StreamK schedule(scheduler.tiles(), steps, gridDim.x);
    const int lane = threadIdx.x % 32;
    const int index = warp_uniform(threadIdx.x / 32);

    shared.start(map_a, map_b);

    constexpr int groups = Ring::warps / 4;  // warpgroups that multiply
    typename Ring::Position at;
    if (index >= Ring::warps) {
        if constexpr (groups > 1) shrink_registers<producer_registers<groups>>();
        if (threadIdx.x != Ring::warps * 32) return;
        for (TileSteps work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
            const TilePosition origin = scheduler.origin(work.tile, 0);
            const int end = const_min(k, (work.first + work.steps) * Ring::depth);
            for (int first = work.first * Ring::depth; first < end; first += Ring::depth, at.advance()) {
                Ring::copy(at, memory, map_a, map_b, origin.row, origin.column, first);
            }
        }
        Ring::end(at, memory);
    } else {
        if constexpr (groups > 1) grow_registers<consumer_registers<groups>>();
        const int warp_row = index / (BN / WN) * WM, warp_column = index % (BN / WN) * WN;
        const unsigned tile_a = shared_address(shared.stage[0].a), tile_b = shared_address(shared.stage[0].b);
        constexpr int outputs = WM * WN / 32;  // of a lane
        constexpr Index room = WM * WN;
        const auto barrier = [] { __syncwarp(); };
        for (TileSteps work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
            // New for each tile: the sums begin as zero, and the addresses take no registers after the loop.
            Warp warp(tile_a, tile_b, warp_row, warp_column, hide_from_compiler(lane));
            auto& accumulator = reinterpret_cast<float(&)[outputs]>(warp.accumulator);
            // Uniform, so that it is not worked out again in the loop.
            const int deep = warp_uniform(const_min(k, work.steps * Ring::depth));
            Ring::template multiply<float>(at, memory, warp, deep, lane);
            const int here = hide_from_compiler(lane);  // for the loop over K to have its registers
            const int own = block * Ring::warps + index, before = own - Ring::warps;
            if (!work.has_last_step(steps)) {  // the next block has the end of this tile
                leave_sums<32>(accumulator, sums + own * room, ready + own, here, barrier);
                continue;
            }
            if (!work.has_first_step()) {  // the block before had the beginning of this tile
                take_sums<32, true>(accumulator, sums + before * room, ready + before, here, barrier);
            }
            const TilePosition origin = scheduler.origin(work.tile, 0);
            const int row = origin.row + warp_row, column = origin.column + warp_column;
            shared.c[index].template store<WM>(warp, map_c, c, m, n, row, column, here, alpha, beta);
        }
        if (lane == 0) wait_for_stores();
    }
}
