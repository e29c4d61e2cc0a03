// A ring of tiles of A and B between one warp that copies them by TMA and warps that multiply them by
// mma.sync. Both sides walk along K, 128 bytes at a time, and the ring goes on from one tile of C to the
// next. The multiplying warps load the first fragments of a stage while they multiply the stage before it.
// So they wait for one stage after the last, and do not use it; `end` marks it full without a copy.
#pragma once

#include "epilogue/warp_tma_store.cuh"
#include "mma/mma_warp.cuh"
#include "schedule/ring.cuh"

// Shared memory of a block: the stages with their barriers, and buffers for results. A stage is `depth` of K
// deep: a row of A has 128 bytes. B lies in panels of 128 bytes of N, `panel_columns` wide and `depth` rows
// high. TMA's 128-byte swizzle is the XOR of mma_staged.
template <class Element, int BM, int BN, int WM, int WN, int Stages>
struct MmaRing {
    static constexpr int depth = 128 / sizeof(Element), warps = BM / WM * (BN / WN);
    enum : int { panel_columns = 128 / sizeof(Element), panels = BN / panel_columns };
    using LayoutA = XorChunks<chunks_of_banks>;
    using LayoutB = PanelChunks<depth>;

    struct alignas(1024) Stage {
        static constexpr int tile_bytes = BM * LayoutA::pitch + panels * LayoutB::panel;
        unsigned char a[BM * LayoutA::pitch];
        unsigned char b[panels][LayoutB::panel];
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

    // Copies the tiles at (row, first) of A and (first, column) of B. Called by the copying thread.
    __device__ static void copy(const Position& at, unsigned char* memory, const TensorMap& map_a,
                                const TensorMap& map_b, int row, int column, int first) {
        Stage& one = at.in(memory);
        mbarrier_wait(one.empty, at.parity ^ 1);  // returns at once on the first pass through the ring
        mbarrier_arrive_expect(one.full, Stage::tile_bytes);
        tma_load(one.a, map_a, row, first, one.full);
#pragma unroll
        for (int panel = 0; panel < panels; ++panel) {
            tma_load(one.b[panel], map_b, first, column + panel * panel_columns, one.full);
        }
    }

    // Marks the stage after the last tile full, once it is empty. Called by the copying thread.
    __device__ static void end(const Position& at, unsigned char* memory) {
        mbarrier_wait(at.in(memory).empty, at.parity ^ 1);
        mbarrier_arrive(at.in(memory).full);
    }

    // Multiplies the next tiles in the ring, ceil(k / depth) of A and of B, and adds the products to the
    // accumulators. Called by all lanes of a warp.
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
