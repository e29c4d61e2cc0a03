// C = alpha * A @ B + beta * C in fp32, row-major, on CUDA cores: TM x TN outputs per thread as a sum of outer products
// in registers, operands from tiles in shared memory.
//
// The FP32 ladder of double-buffering, hip-gemm and gemm-practice in one kernel: every technique is a parameter, and a
// rung is a set of parameters.
//
// BM, BN, BK: block tile, in elements. TM, TN: outputs of a thread. Lanes, How: which outputs those are.
// TransposeA: A lies as BK x BM in shared memory, so that fragments load as LDS.128. OfTiles, Pad: layouts of the
// tiles. OfA: A's column or one element of it at a time in registers. Path: order of the FFMAs. Fenced: a warp barrier
// keeps the loads of fragments ahead of the FFMAs.
// By: the way into shared memory. Halves: half of the threads copies A, the other half B. Width: words per global
// access; 0 is 4 where the rows allow it and 1 elsewhere. Stages: pairs of tiles in shared memory. Buffers: fragments
// of 1 or 2 steps in registers. Ordered, When: place of the fetches and the deposits on the way through registers.
// Strip: width of the threadblock swizzle in tiles, 0 for none. Slices: K is cut into gridDim.z slices, one per block
// of a cluster. MinBlocks: blocks that a multiprocessor must have registers for.

#include "cluster_sum.cuh"
#include "either.cuh"
#include "epilogue.cuh"
#include "index.cuh"
#include "prefetch_loop.cuh"
#include "raster.cuh"
#include "shared_layout.cuh"
#include "staged_loop.cuh"
#include "thread_map.cuh"
#include "thread_product.cuh"
#include "tile_copy.cuh"
#include "tile_pair.cuh"

enum class Load { direct, staged, async };
enum class Tiles { padded, declared, xor_groups, interleaved };

template <int BM, int BN, int BK, int TM, int TN, LaneMap Lanes, Split How, bool TransposeA, Tiles OfTiles, int Pad,
          Operand OfA, Walk Path, bool Fenced, Load By, bool Halves, int Width, int Stages, int Buffers, Order Ordered,
          Deposits When, int Strip, bool Slices, int MinBlocks>
struct Rung {
    static constexpr int threads = BM * BN / (TM * TN), min_blocks = MinBlocks, width = Width;

    template <int Words>
    __device__ static void run(const float* a, const float* b, float* c, int m, int n, int k, float alpha, float beta) {
        constexpr int copiers = Halves ? threads / 2 : threads;
        constexpr int rows_a = TransposeA ? BK : BM, columns_a = TransposeA ? BM : BK;
        // A layout that only one of the operands can use leaves the other one padded.
        using LayoutA = Either<OfTiles == Tiles::declared, Declared<rows_a, columns_a, Pad>,
                               Either<OfTiles == Tiles::xor_groups, XorGroups<rows_a, columns_a>,
                                      Padded<rows_a, columns_a, Pad>>>;
        using LayoutB = Either<OfTiles == Tiles::declared, Declared<BK, BN, Pad>,
                               Either<OfTiles == Tiles::interleaved, Interleaved<BK, BN, TN>, Padded<BK, BN, Pad>>>;
        using CopyA = TileCopy<LayoutA, BM, BK, Words, copiers, TransposeA>;
        using CopyB = TileCopy<LayoutB, BK, BN, Words, copiers>;
        using Copies = Either<Halves, SplitPair<CopyA, CopyB>, TilePair<CopyA, CopyB>>;
        using Map = ThreadMap<Lanes, BM / TM, BN / TN>;
        using AlongA = Edge<How, TM, BM / TM, Map::group_rows>;
        using AlongB = Edge<How, TN, BN / TN, Map::group_columns>;
        extern __shared__ __align__(128) char shared[];

        const int thread = threadIdx.x;
        const TilePosition tile = tile_position<Strip>(blockIdx.x, ceil_div(m, BM), ceil_div(n, BN));
        const Index first_row = Index(tile.row) * BM;
        const int first_column = tile.column * BN;
        const int depth = Slices ? ceil_div(ceil_div(k, BK), gridDim.z) : ceil_div(k, BK);
        const int first = Slices ? blockIdx.z * depth * BK : 0;

        Copies copies{CopyA(a, m, k, first_row, first, thread % copiers),
                      CopyB(b, k, n, first, first_column, thread % copiers)};
        ThreadProduct<TM, TN, BK, Buffers, LayoutA, LayoutB, AlongA, AlongB, TransposeA, OfA, Path, Fenced> product(
            shared, shared + CopyA::bytes, Map::row(thread), Map::column(thread));
        if constexpr (By == Load::staged) {
            multiply_prefetched_tiles<Stages, Buffers, Ordered, When>(copies, product, shared, depth);
        } else {
            constexpr int unrolled = Width == 0 && Words == 1 ? Buffers : 0;  // rarely taken: short code
            multiply_tiles<Stages, Buffers, unrolled>(copies, product, shared, depth);
        }

        constexpr int group = lesser(Words, AlongB::group);
        if constexpr (Slices) {
            release_stages();
            float* sums = reinterpret_cast<float*>(shared);
            product.template for_each_group<group>([&](int row, int column, const float* sum) {
#pragma unroll
                for (int w = 0; w < group; ++w) sums[row * BN + column + w] = sum[w];
            });
            store_sum_of_cluster<BM, BN, threads, Words>(c, m, n, first_row, first_column, shared_address(shared),
                                                         gridDim.z, alpha, beta);
        } else {
            product.template for_each_group<group>([&](int row, int column, const float* sum) {
                const Index to_row = first_row + row, to_column = Index(first_column) + column;
                if (to_row < m && to_column < n) store_outputs<group>(c + to_row * n + to_column, sum, alpha, beta);
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
