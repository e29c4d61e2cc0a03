// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: TM x TN outputs per thread as a sum of
// outer products in registers, operands from tiles in shared memory.
//
// The FP32 ladder of double-buffering, hip-gemm and gemm-practice in one kernel: every technique is a
// parameter, and a rung is a set of parameters.
//
// BM, BN, BK: block tile, in elements. TM, TN: outputs of a thread. Lanes, Outputs: which outputs those are.
// TransposeA: A lies as BK x BM in shared memory, so that fragments load as LDS.128. Layout, Pad: of the
// tiles. ShapeA: A's column or one element of it at a time in registers. Ffmas: their order. Fenced: a warp
// barrier keeps the loads of fragments ahead of the FFMAs.
// Load: the way into shared memory. Halves: half of the threads copies A, the other half B. Width: words per
// global access; 0 is 4 where the rows allow it and 1 elsewhere. Stages: pairs of tiles in shared memory.
// Buffers: fragments of 1 or 2 steps in registers. Fetch, Deposits: their place among the FFMAs, on the way
// through registers. Strip: width of the threadblock swizzle in tiles, 0 for none. Slices: K is cut into
// gridDim.z slices, one per block of a cluster. MinBlocks: blocks that a multiprocessor must have registers
// for.

#include "copy/tile_copy.cuh"
#include "copy/tile_pair.cuh"
#include "epilogue/cluster_sum.cuh"
#include "epilogue/combine_fp32.cuh"
#include "layout/index.cuh"
#include "layout/shared_layout.cuh"
#include "schedule/prefetch_loop.cuh"
#include "schedule/raster.cuh"
#include "schedule/staged_loop.cuh"
#include "simt/thread_map.cuh"
#include "simt/thread_tile.cuh"

enum class Loader { direct, staged, async };
enum class SharedLayout { padded, declared, xor_groups, interleaved };

template <int BM, int BN, int BK, int TM, int TN, LaneMap Lanes, OutputMap Outputs, bool TransposeA,
          SharedLayout Layout, int Pad, FragmentShape ShapeA, FfmaOrder Ffmas, bool Fenced, Loader Load,
          bool Halves, int Width, int Stages, int Buffers, FetchOrder Fetch, DepositPlace Deposits, int Strip,
          bool Slices, int MinBlocks>
struct Rung {
    static constexpr int threads = BM * BN / (TM * TN), min_blocks = MinBlocks, width = Width;

    template <int Words>
    __device__ static void run(const float* a, const float* b, float* c, int m, int n, int k, float alpha,
                               float beta) {
        constexpr int copiers = Halves ? threads / 2 : threads;
        constexpr int rows_a = TransposeA ? BK : BM, columns_a = TransposeA ? BM : BK;
        // A layout that only one of the operands can use leaves the other one padded.
        using RowsA = conditional_t<Layout == SharedLayout::declared, Declared<rows_a, columns_a, Pad>,
                                    Padded<rows_a, columns_a, Pad>>;
        using RowsB =
            conditional_t<Layout == SharedLayout::declared, Declared<BK, BN, Pad>, Padded<BK, BN, Pad>>;
        using LayoutA =
            conditional_t<Layout == SharedLayout::xor_groups, XorGroups<rows_a, columns_a>, RowsA>;
        using LayoutB = conditional_t<Layout == SharedLayout::interleaved, Interleaved<BK, BN, TN>, RowsB>;
        using CopyA = TileCopy<LayoutA, BM, BK, Words, copiers, TransposeA>;
        using CopyB = TileCopy<LayoutB, BK, BN, Words, copiers>;
        using Copies = conditional_t<Halves, SplitPair<CopyA, CopyB>, TilePair<CopyA, CopyB>>;
        using Map = ThreadMap<Lanes, BM / TM, BN / TN>;
        using AlongA = Edge<Outputs, TM, BM / TM, Map::group_rows>;
        using AlongB = Edge<Outputs, TN, BN / TN, Map::group_columns>;
        extern __shared__ __align__(128) char shared[];

        const int thread = threadIdx.x;
        const TilePosition tile = tile_position<Strip>(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN));
        const Index first_row = Index(tile.row) * BM;
        const int first_column = tile.column * BN;
        const int depth = Slices ? ceil_div(ceil_div(k, BK), gridDim.z) : ceil_div(k, BK);
        const int first = Slices ? blockIdx.z * depth * BK : 0;

        Copies copies{CopyA(a, m, k, first_row, first, thread % copiers),
                      CopyB(b, k, n, first, first_column, thread % copiers)};
        ThreadTile<TM, TN, BK, Buffers, LayoutA, LayoutB, AlongA, AlongB, TransposeA, ShapeA, Ffmas, Fenced>
            thread_tile(shared, shared + CopyA::bytes, Map::row(thread), Map::column(thread));
        if constexpr (Load == Loader::staged) {
            prefetch_loop<Stages, Buffers, Fetch, Deposits>(copies, thread_tile, shared, depth);
        } else {
            constexpr int unrolled = Width == 0 && Words == 1 ? Buffers : 0;  // rarely taken: short code
            staged_loop<Stages, Buffers, unrolled>(copies, thread_tile, shared, depth);
        }

        constexpr int group = const_min(Words, AlongB::group);
        if constexpr (Slices) {
            release_stages();
            float* sums = reinterpret_cast<float*>(shared);
            thread_tile.template for_each_group<group>([&](int row, int column, const float* accumulator) {
#pragma unroll
                for (int w = 0; w < group; ++w) sums[row * BN + column + w] = accumulator[w];
            });
            store_sum_of_cluster<BM, BN, threads, Words>(c, m, n, first_row, first_column,
                                                         shared_address(shared), gridDim.z, alpha, beta);
        } else {
            thread_tile.template for_each_group<group>([&](int row, int column, const float* accumulator) {
                const Index to_row = first_row + row, to_column = Index(first_column) + column;
                if (to_row < m && to_column < n) {
                    store_combined_fp32<group>(c + to_row * n + to_column, accumulator, alpha, beta);
                }
            });
        }
    }
};

template <class Gemm>
__global__ void __launch_bounds__(Gemm::threads, Gemm::min_blocks)
gemm_staged(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
            int m, int n, int k, float alpha, float beta) {
    if constexpr (Gemm::width != 0) {
        Gemm::template run<Gemm::width>(a, b, c, m, n, k, alpha, beta);
    } else if (n % 4 == 0 && k % 4 == 0) {
        Gemm::template run<4>(a, b, c, m, n, k, alpha, beta);
    } else {
        Gemm::template run<1>(a, b, c, m, n, k, alpha, beta);
    }
}
