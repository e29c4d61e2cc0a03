// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: gemm_staged with warps that only copy.
//
// The technique: warp specialisation (cutlass has it for tensor cores). A warp scheduler issues one
// instruction per cycle, so every instruction that is not an FFMA delays the FFMAs. In the loop of
// gemm_staged they are 10 % of all: half of them load fragments, the others copy, compute addresses and wait.
// Here one warpgroup copies: A by cp.async, word by word, which transposes it, and B by TMA. The other two
// load fragments and multiply, and 6 % of their instructions are not FFMAs. The two mbarriers of each stage,
// full and empty (schedule/ring.cuh), take the place of __syncthreads.
//
// Tile, Fragments: policies of gemm_staged (simt/policies.cuh). Stages: pairs of tiles in shared memory.
// Ffmas: order of the FFMAs (simt/thread_tile.cuh). Copies fill with zeros what is outside of the matrices.
// K may be 0.

#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
#include "schedule/ring.cuh"
#include "simt/policies.cuh"
#include "simt/thread_tile.cuh"
#include "types/index.cuh"

// A lies transposed. A warp copies 8 words w of 4 rows r, into banks (w * (BM + 4) + r) % 32 = 4 * w + r.
template <class Tile>
struct SharedTiles {
    static constexpr bool transpose_a = true;
    using LayoutA = Padded<Tile::bk, Tile::bm, 4>;
    using LayoutB = Plain<Tile::bk, Tile::bn>;
    using CopyA = TileCopy<LayoutA, Tile::bm, Tile::bk, 1, warpgroup_threads, true>;
};

template <class Tile>
struct alignas(128) Stage {
    unsigned char a[SharedTiles<Tile>::CopyA::bytes];
    float b[Tile::bk * Tile::bn];
    Mbarrier full, empty;
    static_assert(sizeof(a) % 128 == 0, "TMA writes B to a multiple of 128 bytes");
};

// Copies all tiles along K. Called by all threads of the copying warpgroup.
template <class Tile, int Stages>
__device__ inline void copy_tiles(unsigned char* memory, const float* a, const TensorMap& map_b, int m, int k,
                                  Index first_row, int first_column, int thread) {
    using CopyA = typename SharedTiles<Tile>::CopyA;
    CopyA copy_a(a, m, k, first_row, 0, thread);
    RingOffset<Stage<Tile>, Stages> at;
    for (int first = 0; first < k; first += Tile::bk, at.advance()) {
        Stage<Tile>& stage = at.in(memory);
        mbarrier_wait(stage.empty, at.parity ^ 1);  // returns at once on the first pass through the ring
        if (thread == 0) {
            mbarrier_arrive_expect(stage.full, sizeof(stage.b));
            tma_load(stage.b, map_b, first, first_column, stage.full);
        }
        copy_a.start(shared_address(stage.a), 0, 1);
        copy_a.advance_right();
        mbarrier_arrive_after_copies(stage.full);
    }
    // Consumers load fragments one step ahead, at last from a stage that nobody filled; these are not used.
    // So its `full` must end one more phase, without a copy, and only once the stage is empty: else it could
    // end two phases before a slow consumer looks, which would see the old parity and wait for ever.
    Stage<Tile>& stage = at.in(memory);
    mbarrier_wait(stage.empty, at.parity ^ 1);
    if (thread == 0) mbarrier_arrive(stage.full);
    mbarrier_arrive_after_copies(stage.full);
    wait_for_copies<0>();  // before the thread exits
}

template <class Tile, int Stages, class Fragments, FfmaOrder Ffmas>
__global__ void __launch_bounds__(Tile::threads + warpgroup_threads, 1)
gemm_tma(const float* __restrict__ a, const __grid_constant__ TensorMap map_b, float* __restrict__ c,
         int m, int n, int k, float alpha, float beta) {
    static_assert(Tile::threads == 2 * warpgroup_threads && Tile::bk % 2 == 0, "two consumers, two buffers");
    using Outputs = typename Fragments::template Outputs<Tile>;
    alignas(128) extern __shared__ unsigned char memory[];
    const int tiles_n = ceil_div(n, Tile::bn);
    const Index first_row = Index(blockIdx.x / tiles_n) * Tile::bm;
    const int first_column = blockIdx.x % tiles_n * Tile::bn;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    if (threadIdx.x < Stages) {
        Stage<Tile>& stage = reinterpret_cast<Stage<Tile>*>(memory)[threadIdx.x];
        mbarrier_init(stage.full, warpgroup_threads + 1);  // A by each thread, and B's bytes
        mbarrier_init(stage.empty, Tile::threads);         // a release by each of these
        fence_mbarrier_init();
    }
    __syncthreads();
    if (warpgroup == 2) {
        shrink_registers<producer_registers<2>>();
        copy_tiles<Tile, Stages>(memory, a, map_b, m, k, first_row, first_column,
                                 threadIdx.x - Tile::threads);
        return;
    }
    grow_registers<consumer_registers<2>>();
    const int thread = threadIdx.x, row = Outputs::row(thread), column = Outputs::column(thread);
    char* shared = reinterpret_cast<char*>(memory);
    ThreadTile<Tile, SharedTiles<Tile>, Fragments, Ffmas> thread_tile(shared, row, column);
    RingOffset<Stage<Tile>, Stages> at;
    mbarrier_wait(at.in(memory).full, at.parity);
    thread_tile.load_b(at.offset, 0, 0);
    thread_tile.load_a(at.offset, 0, 0);
#pragma unroll 1
    for (int first = 0; first < k; first += Tile::bk) {
        Mbarrier& held = at.in(memory).empty;  // of the stage that is multiplied
#pragma unroll
        for (int step = 0; step < Tile::bk; ++step) {
            if (step == Tile::bk - 1) {  // the next fragments are the next stage's
                at.advance();
                mbarrier_wait(at.in(memory).full, at.parity);
            }
            thread_tile.load_b(at.offset, (step + 1) % Tile::bk, (step + 1) % 2);
            thread_tile.load_a(at.offset, (step + 1) % Tile::bk, (step + 1) % 2);
            thread_tile.multiply(step % 2);
        }
        // Every lane arrives, for racecheck: one arrival per warp after __syncwarp is also correct, but
        // racecheck then reports a race with A's cp.async. It costs 0.3 to 0.6 % with `columns` (H200).
        mbarrier_arrive(held);
    }
    Epilogue<false>::store<Tile, 4>(thread_tile, shared, c, m, n, first_row, first_column, alpha, beta);
}
