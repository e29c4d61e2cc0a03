// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: gemm_staged with warps that only copy.
//
// The technique: warp specialisation of an FP32 GEMM (cutlass has it for tensor cores). Every instruction
// that is no FFMA takes a cycle from them. In the loop of gemm_staged these are 10 %: half of them load
// fragments, the others copy, compute addresses and wait. Here one warpgroup copies: A by cp.async, word by
// word since it lies transposed, and B by TMA. Two warpgroups only load fragments and multiply, and 6 % of
// their instructions are no FFMA. A ring of mbarriers stands between them in place of __syncthreads.
//
// Tile, Fragments: policies of gemm_staged (simt/policies.cuh); 256 threads compute the tile. Stages: pairs
// of tiles in shared memory. Ffmas: order of the FFMAs. Outside of the matrices both copies fill with zeros.
// Where K is 0 the accumulators stay zero.
//
// compute-sanitizer's racecheck reports that the copies of A race with the loads of its fragments. It seems
// not to follow arrivals behind cp.async: where copies land as late as they may, on the CPU emulator
// (tests/test_fp32_tma.py), every load still finds them.

#include "copy/tma.cuh"
#include "layout/index.cuh"
#include "schedule/ring.cuh"
#include "schedule/warpgroup.cuh"
#include "simt/policies.cuh"
#include "simt/thread_tile.cuh"

// The rows of A lie padded, so that its words are stored into different banks.
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
    static_assert(sizeof(a) % 128 == 0, "TMA writes B from 128 bytes on");
};

// The copies of all tiles along K. All threads of the warpgroup.
template <class Tile, int Stages>
__device__ inline void copy_tiles(unsigned char* memory, const float* a, const TensorMap& map_b, int m, int k,
                                  Index first_row, int first_column, int thread) {
    using CopyA = typename SharedTiles<Tile>::CopyA;
    CopyA copy_a(a, m, k, first_row, 0, thread);
    RingOffset<Stage<Tile>, Stages> at;
    for (int first = 0; first < k; first += Tile::bk, at.advance()) {
        Stage<Tile>& stage = at.in(memory);
        mbarrier_wait(stage.empty, at.parity ^ 1);  // passes in the first round
        if (thread == 0) {
            mbarrier_arrive_expect(stage.full, sizeof(stage.b));
            tma_load(stage.b, map_b, first, first_column, stage.full);
        }
        copy_a.start(shared_address(stage.a), 0, 1);
        copy_a.advance_right();
        mbarrier_arrive_after_copies(stage.full);
    }
    // The others load fragments a step ahead, at the end from a stage that they do not multiply: it counts as
    // full without a copy. It must be empty here too: of two phases of `full` that end before a consumer
    // looks, it would see none.
    Stage<Tile>& stage = at.in(memory);
    mbarrier_wait(stage.empty, at.parity ^ 1);
    if (thread == 0) mbarrier_arrive(stage.full);
    mbarrier_arrive_after_copies(stage.full);
    wait_for_copies<0>();
}

template <class Tile, int Stages, class Fragments, FfmaOrder Ffmas>
__global__ void __launch_bounds__(Tile::threads + warpgroup_threads, 1)
gemm_tma(const float* __restrict__ a, const __grid_constant__ TensorMap map_b, float* __restrict__ c,
         int m, int n, int k, float alpha, float beta) {
    static_assert(Tile::threads == 2 * warpgroup_threads && Tile::bk % 2 == 0, "two warpgroups multiply");
    using Outputs = typename Fragments::template Outputs<Tile>;
    alignas(128) extern __shared__ unsigned char memory[];
    const int tiles_n = ceil_div(n, Tile::bn);
    const Index first_row = Index(blockIdx.x / tiles_n) * Tile::bm;
    const int first_column = blockIdx.x % tiles_n * Tile::bn;
    // The shuffle makes it uniform for the compiler: each role is a branch that whole warps take.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / warpgroup_threads, 0);
    if (threadIdx.x < Stages) {
        Stage<Tile>& stage = reinterpret_cast<Stage<Tile>*>(memory)[threadIdx.x];
        mbarrier_init(stage.full, warpgroup_threads + 1);  // A by each thread, and B's bytes
        mbarrier_init(stage.empty, Tile::threads / 32);    // a release per warp
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
        __syncwarp();  // all lanes have read the stage
        if (thread % 32 == 0) mbarrier_arrive(held);
    }
    Epilogue<false>::store<Tile, 4>(thread_tile, shared, c, m, n, first_row, first_column, alpha, beta);
}
