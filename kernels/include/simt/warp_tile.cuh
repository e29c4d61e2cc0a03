// A tile of BM x BN outputs that one warp computes, TM x TN of them per lane, in steps of BK along K. A step
// of A lies in shared memory as it does in global memory, BM rows of BK words, so that a 128-bit load takes
// four k of a row; its 16-byte chunks are XOR-swizzled, because lanes read different rows. A step of B lies
// as BK rows of BN words.
//
// Lanes form a grid of BM / TM x BN / TN. A lane's rows lie a grid apart, and so do its groups of four
// columns: neighbours read neighbouring chunks. Where the grid has two dimensions, lane ^ 1 is in the same
// row and lane ^ 2 in the same column (zigzag, thread_map.cuh), so that a 128-bit load of either operand
// takes two wavefronts and not four.
#pragma once

#include "copy/warp_copy.cuh"
#include "layout/chunk_layout.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK, int TM, int TN>
struct WarpTile {
    static constexpr int bm = BM, bn = BN, bk = BK;
    static constexpr int lane_rows = BM / TM, lane_columns = BN / TN;
    static_assert(lane_rows * lane_columns == 32, "the lanes of a warp cover the tile");

    using LayoutA = XorChunks<BK / 4>;
    using LayoutB = PaddedChunks<BN / 4, 0>;
    // A layout starts on 128 bytes.
    static constexpr int bytes_a = ceil_div(BM * LayoutA::pitch, 128) * 128;
    static constexpr int bytes = bytes_a + ceil_div(BK * LayoutB::pitch, 128) * 128;

    float accumulator[TM][TN] = {};

    __device__ explicit WarpTile(int lane)
        : row(lane_columns == 1 ? lane
              : lane_rows == 1  ? 0
                                : lane / 2 % 2 + lane / 4 / const_max(lane_columns / 2, 1) * 2),
          column(lane_columns == 1 ? 0
                 : lane_rows == 1  ? lane
                                   : lane % 2 + lane / 4 % const_max(lane_columns / 2, 1) * 2),
          offset_a(LayoutA::offset(row, 0)), offset_b(bytes_a + LayoutB::offset(0, column)) {}

    // The step from (row 0, column 0) of both operands on. `to`: where it goes in shared memory.
    __device__ static void copy(unsigned to, const float* a, const float* b, int n, int k, int rows_left,
                                int columns_left, int k_left, int lane) {
        copy_by_warp<LayoutA, BM, BK>(to, a, k, rows_left, k_left, lane);
        copy_by_warp<LayoutB, BK, BN>(to + bytes_a, b, n, k_left, columns_left, lane);
    }

    // Four k at a time: of the operand with fewer values they are all in registers, the other's come in turn.
    __device__ void multiply(const char* step) {
#pragma unroll
        for (int chunk = 0; chunk < BK / 4; ++chunk) {
            if constexpr (TM <= TN) {
                Vector<float, 4> a[TM];
#pragma unroll
                for (int y = 0; y < TM; ++y) a[y] = load_a(step, y, chunk);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float b[TN];
                    load_b(b, step, 4 * chunk + i);
#pragma unroll
                    for (int y = 0; y < TM; ++y) accumulate(y, a[y].value[i], b);
                }
            } else {
                float b[4][TN];
#pragma unroll
                for (int i = 0; i < 4; ++i) load_b(b[i], step, 4 * chunk + i);
#pragma unroll
                for (int y = 0; y < TM; ++y) {
                    const Vector<float, 4> a = load_a(step, y, chunk);
#pragma unroll
                    for (int i = 0; i < 4; ++i) accumulate(y, a.value[i], b[i]);
                }
            }
        }
    }

    // The accumulators to a tile in shared memory, whose rows are Stride words apart.
    template <int Stride>
    __device__ void store_shared(float* to) const {
#pragma unroll
        for (int y = 0; y < TM; ++y) {
#pragma unroll
            for (int x = 0; x < TN; x += 4) {
                Vector<float, 4> out;
#pragma unroll
                for (int w = 0; w < 4; ++w) out.value[w] = accumulator[y][x + w];
                store_vector(to + (row + y * lane_rows) * Stride + (4 * column + x * lane_columns), out);
            }
        }
    }

  private:
    int row, column;  // of the lane in the grid
    int offset_a, offset_b;

    __device__ Vector<float, 4> load_a(const char* step, int y, int chunk) const {
        const int offset = LayoutA::below(LayoutA::across(offset_a, chunk), y * lane_rows);
        return load_vector<4>(reinterpret_cast<const float*>(step + offset));
    }
    __device__ void load_b(float (&b)[TN], const char* step, int k) const {
#pragma unroll
        for (int x = 0; x < TN; x += 4) {
            const char* from = step + offset_b + k * LayoutB::pitch + x / 4 * lane_columns * chunk_bytes;
            const Vector<float, 4> read = load_vector<4>(reinterpret_cast<const float*>(from));
#pragma unroll
            for (int w = 0; w < 4; ++w) b[x + w] = read.value[w];
        }
    }
    __device__ void accumulate(int y, float a, const float (&b)[TN]) {
#pragma unroll
        for (int x = 0; x < TN; ++x) accumulator[y][x] += a * b[x];
    }
};
