// Which outputs of a block tile a thread computes: threads form a grid of ThreadRows x ThreadColumns over the tile, and
// each owns TM x TN outputs. Warps tile that grid with rectangles as near to square as 32 allows (4 x 8, or 8 x 4 where
// the grid is narrow), because the words a warp reads from A and B grow with the rectangle's edges.
#pragma once

#include "index.cuh"

//   plain   lanes in row-major order.
//   zigzag  lane ^ 1 is the neighbour in the row, lane ^ 2 the neighbour in the column (maxas). A 128-bit shared load is
//           served a quarter warp at a time, or half a warp at a time where such lane pairs read the same address:
//           here that holds for A (pairs in a row) and for B (pairs in a column) alike.
enum class LaneMap { plain, zigzag };

template <LaneMap Lanes, int ThreadRows, int ThreadColumns>
struct ThreadMap {
    static constexpr int lane_columns = lesser(ThreadColumns, 8);
    static constexpr int lane_rows = 32 / lane_columns;
    static constexpr int warp_columns = ThreadColumns / lane_columns;
    static_assert(ThreadRows % lane_rows == 0 && ThreadColumns % lane_columns == 0, "warps must tile the grid");

    __host__ __device__ static constexpr int row(int thread) {
        return thread / 32 / warp_columns * lane_rows + lane_row(thread % 32);
    }
    __host__ __device__ static constexpr int column(int thread) {
        return thread / 32 % warp_columns * lane_columns + lane_column(thread % 32);
    }

  private:
    // The lane's number without bit 1, which zigzag spends on the row.
    __host__ __device__ static constexpr int without_bit_1(int lane) { return lane % 2 + lane / 4 * 2; }

    __host__ __device__ static constexpr int lane_row(int lane) {
        return Lanes == LaneMap::plain ? lane / lane_columns
                                       : lane / 2 % 2 + without_bit_1(lane) / lane_columns * 2;
    }
    __host__ __device__ static constexpr int lane_column(int lane) {
        return Lanes == LaneMap::plain ? lane % lane_columns : without_bit_1(lane) % lane_columns;
    }
};

// The Count positions of one of `Threads` threads along an edge of the tile: groups of four, one group of every thread
// next to the other. A thread that held its 8 values in one piece would lie 8 words from its neighbour, so that eight
// lanes' 128-bit loads would meet in half of the banks; 4 words apart they cover all 32.
template <int Count, int Threads>
struct SplitFragment {
    static constexpr int group = lesser(Count, 4);
    static_assert(Count % group == 0, "whole groups");

    __host__ __device__ static constexpr int position(int thread, int i) {
        return i / group * (group * Threads) + thread * group + i % group;
    }
};
