// A ring of tiles of A and B between one warp that copies them by TMA and warps that multiply them by
// mma.sync. Both sides walk along K, 128 bytes at a time, and the ring goes on from one tile of C to the
// next. The multiplying warps load the first fragments of a stage while they multiply the stage before it, so
// they wait for one stage beyond the last, which the copying thread marks full without a copy (`end`).
#pragma once

#include "epilogue/warp_tma_store.cuh"
#include "mma/mma_warp.cuh"
#include "schedule/ring.cuh"

// Shared memory of a block: the stages with their barriers, and buffers for results. TMA's 128-byte swizzle
// is the XOR of mma_staged; B lies in panels of 128 bytes.
template <class Element, int BM, int BN, int WM, int WN, int Stages>
struct MmaRing {
    static constexpr int depth = 128 / sizeof(Element), warps = BM / WM * (BN / WN);
    using LayoutA = XorChunks<chunks_of_banks>;
    using LayoutB = PanelChunks<depth>;

    struct alignas(1024) Stage {
        static constexpr int tile_bytes = BM * LayoutA::pitch + BN / depth * LayoutB::panel;
        unsigned char a[BM * LayoutA::pitch];
        unsigned char b[BN / depth][LayoutB::panel];
        Mbarrier full, empty;
    };
    using Position = RingOffset<Stage, Stages>;
    template <class Accumulator>
    using Warp = MmaWarp<Element, Accumulator, WM, WN, depth, LayoutA, LayoutB, 2>;

    Stage stage[Stages];
    WarpTmaStore<Element, WN> c[warps];

    // All threads of the block.
    __device__ void start(const TensorMap& map_a, const TensorMap& map_b) {
        if (threadIdx.x == 0) {
            prefetch(map_a);
            prefetch(map_b);
            for (Stage& one : stage) {
                mbarrier_init(one.full, 1);
                mbarrier_init(one.empty, warps);
            }
            fence_mbarrier_init();
        }
        __syncthreads();
    }

    // Copies the tiles at (row, first) of A and (first, column) of B. One thread.
    __device__ static void copy(const Position& at, unsigned char* memory, const TensorMap& map_a,
                                const TensorMap& map_b, int row, int column, int first) {
        Stage& one = at.in(memory);
        mbarrier_wait(one.empty, at.parity ^ 1);  // passes in the first round
        mbarrier_arrive_expect(one.full, Stage::tile_bytes);
        tma_load(one.a, map_a, row, first, one.full);
#pragma unroll
        for (int panel = 0; panel < BN / depth; ++panel) {
            tma_load(one.b[panel], map_b, first, column + panel * depth, one.full);
        }
    }

    // The extra stage for which the multiplying warps wait.
    __device__ static void end(const Position& at, unsigned char* memory) {
        mbarrier_wait(at.in(memory).empty, at.parity ^ 1);
        mbarrier_arrive(at.in(memory).full);
    }

    // Adds the products of the next `k` of K to the accumulators. All lanes of a warp.
    template <class Accumulator>
    __device__ static void multiply(Position& at, unsigned char* memory, Warp<Accumulator>& warp, int k,
                                    int lane) {
        mbarrier_wait(at.in(memory).full, at.parity);
        warp.load(at.offset, 0, 0);
#pragma unroll 1
        for (int first = 0; first < k; first += depth) {
            Mbarrier& held = at.in(memory).empty;
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
            if (lane == 0) mbarrier_arrive(held);
        }
    }
};
