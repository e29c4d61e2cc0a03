// The five policies of gemm_staged, an fp32 GEMM on CUDA cores: what it computes, how tiles get into shared
// memory, which values a thread holds, in which order it works, and how sums leave. A rung of the FP32
// ladder is a choice of their values.
#pragma once

#include "copy/tile_copy.cuh"
#include "copy/tile_pair.cuh"
#include "epilogue/cluster_sum.cuh"
#include "epilogue/combine_fp32.cuh"
#include "layout/row_map.cuh"
#include "layout/shared_layout.cuh"
#include "schedule/prefetch_loop.cuh"
#include "schedule/staged_loop.cuh"
#include "simt/thread_map.cuh"
#include "simt/thread_tile.cuh"
#include "types/index.cuh"

// BM x BN outputs of a block from BK of K at a time, TM x TN outputs of a thread. MinBlocks: blocks that a
// multiprocessor must have registers for.
template <int BM, int BN, int BK, int TM, int TN, int MinBlocks>
struct Tile {
    static constexpr int bm = BM, bn = BN, bk = BK, tm = TM, tn = TN, min_blocks = MinBlocks;
    static constexpr int threads = BM * BN / (TM * TN);
};

//   direct  loaded into registers and stored to shared memory at once.
//   staged  the same, but loaded while the tile before is multiplied (prefetch_loop.cuh).
//   async   by cp.async, past the registers (staged_loop.cuh).
enum class Loader { direct, staged, async };
enum class SharedLayout { padded, declared, xor_groups, interleaved };

// The way into Stages pairs of tiles in shared memory, and how they lie there. Width: words per global
// access; 0 is 4 where the rows allow it and 1 elsewhere. Halves: half of the threads copies A, the other
// half B. TransposeA: A lies as BK x BM, so that fragments load as LDS.128. Pad: words added to each row.
template <Loader Load, int Stages, int Width, bool Halves, bool TransposeA, SharedLayout Layout, int Pad>
struct Copy {
    static constexpr Loader loader = Load;
    static constexpr int stages = Stages, width = Width;

    template <int Rows, int Columns>
    using InRows = conditional_t<Layout == SharedLayout::declared, Declared<Rows, Columns, Pad>,
                                 Padded<Rows, Columns, Pad>>;

    // Words: of a global access. RowMap: which rows of A its tile holds.
    template <class Tile, int Words, class RowMap = EveryRow>
    struct SharedTiles {
        static constexpr bool transpose_a = TransposeA;
        static constexpr int copiers = Halves ? Tile::threads / 2 : Tile::threads;
        static constexpr int rows_a = TransposeA ? Tile::bk : Tile::bm;
        static constexpr int columns_a = TransposeA ? Tile::bm : Tile::bk;
        // A layout that only one of the operands can use leaves the other one padded.
        using LayoutA = conditional_t<Layout == SharedLayout::xor_groups, XorGroups<rows_a, columns_a>,
                                      InRows<rows_a, columns_a>>;
        using LayoutB = conditional_t<Layout == SharedLayout::interleaved,
                                      Interleaved<Tile::bk, Tile::bn, Tile::tn>, InRows<Tile::bk, Tile::bn>>;
        using CopyA = TileCopy<LayoutA, Tile::bm, Tile::bk, Words, copiers, TransposeA, RowMap>;
        using CopyB = TileCopy<LayoutB, Tile::bk, Tile::bn, Words, copiers>;
        using Pair = conditional_t<Halves, SplitPair<CopyA, CopyB>, TilePair<CopyA, CopyB>>;
    };
};

// Which outputs are a thread's, and what it holds of the operands: fragments of Buffers steps of K, A's
// column or one element of it at a time. Fenced: a warp barrier keeps their loads ahead of the FFMAs.
template <LaneMap Lanes, OutputMap Map, FragmentShape ShapeA, int Buffers, bool Fenced>
struct Fragments {
    static constexpr FragmentShape shape_a = ShapeA;
    static constexpr int buffers = Buffers;
    static constexpr bool fenced = Fenced;

    template <class Tile>
    struct Outputs : ThreadMap<Lanes, Tile::bm / Tile::tm, Tile::bn / Tile::tn> {
        using AlongA = Edge<Map, Tile::tm, Tile::bm / Tile::tm, Outputs::group_rows>;
        using AlongB = Edge<Map, Tile::tn, Tile::bn / Tile::tn, Outputs::group_columns>;
    };
};

// The order of the FFMAs; where the staged loader's fetches and deposits are among them; and the order of
// tiles: Strip is the width of the threadblock swizzle in tiles, 0 for none.
template <FfmaOrder Ffmas, FetchOrder Fetch, DepositPlace Deposits, int Strip>
struct Order {
    static constexpr FfmaOrder ffmas = Ffmas;
    static constexpr FetchOrder fetch = Fetch;
    static constexpr DepositPlace deposits = Deposits;
    static constexpr int strip = Strip;
};

// Sliced: K is cut into gridDim.z slices, one per block of a cluster, which add up their sums.
template <bool Sliced>
struct Epilogue {
    static constexpr bool sliced = Sliced;

    // A thread's accumulators into the tile of C whose corner is (first_row, first_column). Words: of an
    // access. map: which row of C a row of the tile is; slices of K take every row.
    template <class Tile, int Words, class ThreadTile, class RowMap = EveryRow>
    __device__ static void store(const ThreadTile& thread_tile, char* shared, float* c, int m, int n,
                                 Index first_row, int first_column, float alpha, float beta,
                                 RowMap map = {}) {
        constexpr int group = const_min(Words, ThreadTile::group);
        if constexpr (Sliced) {
            release_stages();
            float* own = reinterpret_cast<float*>(shared);
            thread_tile.template for_each_group<group>([&](int row, int column, const float* accumulator) {
#pragma unroll
                for (int w = 0; w < group; ++w) own[row * Tile::bn + column + w] = accumulator[w];
            });
            store_sum_of_cluster<Tile::bm, Tile::bn, Tile::threads, Words>(
                c, m, n, first_row, first_column, shared_address(shared), gridDim.z, alpha, beta);
        } else {
            thread_tile.template for_each_group<group>([&](int row, int column, const float* accumulator) {
                const Index to_row = first_row + map.row(row), to_column = Index(first_column) + column;
                if (to_row < m && to_column < n) {
                    store_combined_fp32<group>(c + to_row * n + to_column, accumulator, alpha, beta);
                }
            });
        }
    }
};
