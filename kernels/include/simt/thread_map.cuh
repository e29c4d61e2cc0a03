// Which outputs of a block tile a thread computes: threads form a grid of ThreadRows x ThreadColumns over the
// tile, and each owns TM x TN outputs. The order of threads in that grid decides which words a warp reads
// together.
#pragma once

#include "types/index.cuh"

// Groups of 32 threads (a warp) or 64 (two warps; the AMD wavefront of hip-gemm) cover the grid row by row.
// Within a group threads lie row by row, or
//   zigzag  lane ^ 1 is the neighbour in the row, lane ^ 2 the neighbour in the column (maxas). A 128-bit
//           shared load serves a quarter warp per wavefront, or half a warp where such lane pairs read the
//           same address: here they do for A (pairs in a row) and for B (pairs in a column).
enum class LaneMap { rows_1x32, rows_2x16, rows_4x8, rows_8x4, rows_4x16, rows_8x8, zigzag_4x8, zigzag_8x4 };

template <LaneMap Lanes, int ThreadRows, int ThreadColumns>
struct ThreadMap {
    static constexpr int group_columns = Lanes == LaneMap::rows_1x32                                   ? 32
                                         : Lanes == LaneMap::rows_2x16 || Lanes == LaneMap::rows_4x16  ? 16
                                         : Lanes == LaneMap::rows_8x4 || Lanes == LaneMap::zigzag_8x4 ? 4
                                                                                                       : 8;
    static constexpr int group = Lanes == LaneMap::rows_4x16 || Lanes == LaneMap::rows_8x8 ? 64 : 32;
    static constexpr int group_rows = group / group_columns;
    static constexpr int groups_in_row = ThreadColumns / group_columns;
    static_assert(ThreadRows % group_rows == 0 && ThreadColumns % group_columns == 0,
                  "groups must tile the grid");

    __host__ __device__ static constexpr int row(int thread) {
        return thread / group / groups_in_row * group_rows + row_in_group(thread % group);
    }
    __host__ __device__ static constexpr int column(int thread) {
        return thread / group % groups_in_row * group_columns + column_in_group(thread % group);
    }

  private:
    static constexpr bool zigzag = Lanes == LaneMap::zigzag_4x8 || Lanes == LaneMap::zigzag_8x4;

    // The thread's number without bit 1, which zigzag spends on the row.
    __host__ __device__ static constexpr int without_bit_1(int thread) { return thread % 2 + thread / 4 * 2; }

    // Zigzag counts up the row's further bits last where rows are long, first where they are short.
    __host__ __device__ static constexpr int row_in_group(int thread) {
        if (!zigzag) return thread / group_columns;
        return Lanes == LaneMap::zigzag_8x4 ? thread % 16 / 2
                                            : thread / 2 % 2 + without_bit_1(thread) / group_columns * 2;
    }
    __host__ __device__ static constexpr int column_in_group(int thread) {
        if (!zigzag) return thread % group_columns;
        return Lanes == LaneMap::zigzag_8x4 ? thread % 2 + thread / 16 * 2
                                            : without_bit_1(thread) % group_columns;
    }
};

// The Count positions that a thread owns along an edge of the tile lie
//   adjacent    side by side. With eight words from thread to thread, 128-bit loads of eight lanes use half
//               of the banks.
//   quadrants   in groups of four; the first groups of all threads lie side by side, then the second groups.
//               Four words from thread to thread cover all banks. A warp owns a part of each quarter of the
//               tile (maxas).
//   contiguous  in groups of four as well, but a warp's groups lie together: it owns one rectangle of the
//               tile (matmul-worklog, kernel 10).
enum class OutputMap { adjacent, quadrants, contiguous };

// Threads along the edge, Together of them in one group of the map.
template <OutputMap Outputs, int Count, int Threads, int Together>
struct Edge {
    static constexpr int group = const_min(Count, 4);
    static_assert(Count % group == 0, "whole groups");

    __host__ __device__ static constexpr int first(int thread) {
        if (Outputs == OutputMap::adjacent) return thread * Count;
        if (Outputs == OutputMap::quadrants) return thread * group;
        return thread / Together * (Together * Count) + thread % Together * group;
    }
    __host__ __device__ static constexpr int step(int i) {
        if (Outputs == OutputMap::adjacent) return i;
        return i / group * (group * (Outputs == OutputMap::quadrants ? Threads : Together)) + i % group;
    }
    __host__ __device__ static constexpr int position(int thread, int i) { return first(thread) + step(i); }
};
