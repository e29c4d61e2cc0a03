// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: several tiles of C per block.
// Rung 6e of docs/ladders/tensor-cores.md: tiles of two widths. It changes 6d_serpentine.
//
// The technique: tiles of two widths. At M = N = 4096 there are 512 tiles of 128 x 256 for 132 blocks: after
// three full waves the fourth leaves 16 blocks without a tile. Here in half of the 32 rows of tiles 17 tiles
// replace 16: one of 256 columns, and sixteen of Narrow = 240. That makes 528 tiles, four full waves
// (schedule/even_tiles.cuh works this out for any size). 110 blocks get two wide and two narrow tiles, as
// much work as 3.875 wide ones. The most that a block gets is 3.94, instead of 4: a gain of at most 1.6 %.
//
// N is part of the wgmma instruction, so each width has its own accumulators and loop. New are EvenTiles and
// the branch on is_narrow; the rest is 6d's loop, moved to schedule/wgmma_loop.cuh, and its stagger, moved to
// schedule/hand_over.cuh. The producer loads 256 columns of B for a narrow tile too: 3 % more bytes, so this
// gains only where the tensor cores are the limit. A store has boxes of 64 columns: the fourth of a narrow
// tile begins 16 columns earlier, and stores these a second time, with the same values.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements; BK is 64. Narrow: columns of narrow tiles. Stages: tiles of A and B in the ring.
// Raster: width of the threadblock swizzle in tiles, 0 for row by row, or hilbert. Buffers: of 64 rows x 128
// bytes for results on their way, per consumer.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "schedule/even_tiles.cuh"
#include "schedule/hand_over.cuh"
#include "schedule/ring.cuh"
#include "schedule/wgmma_loop.cuh"
#include "types/index.cuh"

using Alone = ClusterShape<1, 1>;
constexpr int consumers = 2;

template <class Element, Major MajorB, int BM, int BN, int Stages, int Buffers>
struct Shared {
    OperandTile<Element, Major::k, BM> a[Stages];
    OperandTile<Element, MajorB, BN> b[Stages];
    TmaStoreRing<Element, BN, Buffers> c[consumers];
    RingBarriers<Stages> ring;
};

// A consumer's part of a tile, of as many columns as there are accumulators for.
template <class Memory, class Value, class Stagger, int Fragments, int Registers>
__device__ inline void compute_tile(float (&accumulator)[Fragments][Registers], Consumer<Memory>& consumer,
                                    const MatrixC<Value>& result, const TensorMap& map_c,
                                    const TilePosition& origin, Stagger& stagger) {
    clear(accumulator);  // or the compiler keeps both sets of accumulators alive across tiles
    const int held = wgmma_loop<Alone>(accumulator, consumer, stagger);
    wgmma_wait_all(accumulator);
    release_stage<Alone>(consumer.shared.ring.empty[held], 0, consumer.lane);  // for the next tile
    const int row = origin.row + consumer.row, column = origin.column, number = consumer.number;
    combine_accumulators(accumulator, result, row, column, consumer.thread);
    consumer.shared.c[number].store(accumulator, map_c, row, column, consumer.thread, number + 1,
                                    consumer.next_buffer);
}

template <class Element, Major MajorB, int BM, int BN, int Narrow, int Stages, int Raster, int Buffers>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
hopper_two_widths(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                  const __grid_constant__ TensorMap map_c, Element* c, int m, int n, int k, float alpha,
                  float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN, Stages, Buffers>*>(memory);
    auto& ring = shared.ring;
    const int depth = shared.a[0].depth, steps = ceil_div(k, depth);
    const EvenTiles<BM, BN, Narrow, Alone, Raster> scheduler(m, n, gridDim.x);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads;
    if (threadIdx.x == 0) {
        prefetch(map_a);  // the descriptor, not the matrix
        prefetch(map_b);
        ring.init(consumers * 4);  // a release per warp of the consumers
    }
    __syncthreads();

    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();
        if (one_of_warpgroup(thread)) {
            RingPosition<Stages> at;  // goes on from tile to tile
            bool backwards = false;
            for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x, backwards = !backwards) {
                const TilePosition origin = scheduler.origin(tile, 0);
                for (int step = 0; step < steps; ++step, at.advance()) {
                    auto& a = shared.a[at.stage];
                    auto& b = shared.b[at.stage];
                    const int k_of_step = (backwards ? steps - 1 - step : step) * depth;
                    ring.wait_until_empty(at);  // returns at once on the first pass through the ring
                    mbarrier_arrive_expect(ring.full[at.stage], a.bytes + b.bytes);
                    a.load(map_a, origin.row, k_of_step, ring.full[at.stage]);
                    b.load(map_b, origin.column, k_of_step, ring.full[at.stage]);
                }
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        constexpr int rows = BM / consumers;
        static_assert(rows % 64 == 0, "a wgmma has 64 rows");
        const int number = warpgroup - 1;
        // The block's rank in its cluster, and where the consumer's part of a tile begins.
        const int rank = 0, first_row = number * rows, first_column = 0;
        Consumer consumer(shared, rank, steps, number, thread, first_row, first_column);
        const MatrixC<Element> result{c, m, n, alpha, beta};
        const bool has_work = blockIdx.x < scheduler.tiles();
        Stagger<1, consumers> stagger(number, has_work ? steps : 0);  // by one step, as in 6c_stagger
        for (int tile = blockIdx.x; tile < scheduler.tiles(); tile += gridDim.x) {
            const TilePosition origin = scheduler.origin(tile, 0);
            if (scheduler.is_narrow(tile)) {
                float accumulator[rows / 64][Narrow / 2];
                compute_tile(accumulator, consumer, result, map_c, origin, stagger);
            } else {
                float accumulator[rows / 64][BN / 2];
                compute_tile(accumulator, consumer, result, map_c, origin, stagger);
            }
        }
        if (thread == 0) wait_for_stores();  // it started them
    }
}
