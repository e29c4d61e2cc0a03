// A warp's WM x WN part of a block tile, multiplied by mma.sync out of chunked tiles in shared memory
// (chunk_layout.cuh), in fragments of 16 x 16 that take two instructions.
//
// Both operands lie as in memory: A along the depth, B along the columns. ldmatrix loads fragments of A, and,
// transposed, fragments of a 16-bit B. It cannot transpose 32-bit elements, so tf32 computes C^T = B^T A^T.
// There B is the wide operand, of four words a lane, and two neighbouring columns of a row of B are two
// neighbouring words: one LDS.64. The columns of a fragment are numbered so that the sixteen lanes of one
// wavefront (rows 0 to 3, four lanes each) read two chunks of a row, four chunks apart. Both XOR and an odd
// pitch put the chunks of four rows into different banks.
#pragma once

#include "layout/chunk_layout.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"

// Where a lane finds its words of a fragment, and where its accumulators of a fragment of C belong: pairs 0
// to 3 side by side in a row, of which 0 and 1 lie in the upper eight rows.
template <class Element>
struct FragmentMap {
    __host__ __device__ static constexpr int row_a(int lane) { return lane % 16; }
    __host__ __device__ static constexpr int chunk_a(int lane) { return lane / 16; }
    __host__ __device__ static constexpr int row_b(int lane) { return lane % 16; }
    __host__ __device__ static constexpr int chunk_b(int lane) { return lane / 16; }
    __host__ __device__ static constexpr int byte_b(int) { return 0; }
    // Chunks from fragment 0 to fragment x of B.
    __host__ __device__ static constexpr int fragment_b(int x) { return 2 * x; }

    __host__ __device__ static constexpr int pair_row(int pair, int lane) { return lane / 4 + pair / 2 * 8; }
    __host__ __device__ static constexpr int pair_column(int pair, int x, int lane) {
        return 16 * x + pair % 2 * 8 + lane % 4 * 2;
    }

    template <class Layout>
    __device__ static void load_b(int address, int stage, unsigned (&b)[4]) {
        ldmatrix_trans(address + stage, b);
    }

    template <class Accumulator>
    __device__ static void mma(AccumulatorFragment<Accumulator> (&accumulator)[2], const unsigned (&a)[4],
                               const unsigned (&b)[4]) {
        Mma<Element, Accumulator>::mma(accumulator[0], a, b[0], b[1]);
        Mma<Element, Accumulator>::mma(accumulator[1], a, b[2], b[3]);
    }

    template <class Accumulator>
    __device__ static float pair_value(const AccumulatorFragment<Accumulator> (&accumulator)[2], int pair,
                                       int i) {
        return accumulator[pair % 2].value(pair / 2 * 2 + i);
    }
};

template <>
struct FragmentMap<float> {
    __host__ __device__ static constexpr int row_a(int lane) { return lane % 8 + lane / 16 * 8; }
    __host__ __device__ static constexpr int chunk_a(int lane) { return lane / 8 % 2; }
    __host__ __device__ static constexpr int row_b(int lane) { return lane % 4; }
    __host__ __device__ static constexpr int chunk_b(int lane) { return lane / 8 % 2 * 4 + lane / 16; }
    __host__ __device__ static constexpr int byte_b(int lane) { return lane / 4 % 2 * 8; }
    __host__ __device__ static constexpr int fragment_b(int x) { return x % 2 * 2 + x / 2 * 8; }

    __host__ __device__ static constexpr int pair_row(int pair, int lane) {
        return pair / 2 * 8 + lane % 4 * 2 + pair % 2;
    }
    __host__ __device__ static constexpr int pair_column(int, int x, int lane) {
        return (fragment_b(x) + chunk_b(lane)) * 4 + byte_b(lane) / 4;
    }

    template <class Layout>
    __device__ static void load_b(int address, int stage, unsigned (&b)[4]) {
        ld_shared_v2(address + stage, b[0], b[1]);
        ld_shared_v2(Layout::below(address, 4) + stage, b[2], b[3]);
    }

    __device__ static void mma(AccumulatorFragment<float> (&accumulator)[2], const unsigned (&a)[4],
                               const unsigned (&b)[4]) {
        Mma<float, float>::mma(accumulator[0], b, a[0], a[1]);
        Mma<float, float>::mma(accumulator[1], b, a[2], a[3]);
    }

    __device__ static float pair_value(const AccumulatorFragment<float> (&accumulator)[2], int pair, int i) {
        return accumulator[pair / 2].value(pair % 2 + 2 * i);
    }
};

template <class Element, class Accumulator, int WM, int WN, int BK, class LayoutA, class LayoutB, int Buffers>
struct MmaWarp {
    using Map = FragmentMap<Element>;
    static constexpr int depth = 2 * per_chunk<Element>;  // of one mma
    static constexpr int steps = BK / depth;

    int address_a, address_b;  // of the lane's first words in the tiles of stage 0
    unsigned a[Buffers][WM / 16][4], b[Buffers][WN / 16][4];
    AccumulatorFragment<Accumulator> accumulator[WM / 16][WN / 16][2];

    __device__ MmaWarp(unsigned tile_a, unsigned tile_b, int row, int column, int lane)
        : address_a(tile_a + LayoutA::offset(row + Map::row_a(lane), Map::chunk_a(lane))),
          address_b(tile_b +
                    LayoutB::offset(Map::row_b(lane), column / per_chunk<Element> + Map::chunk_b(lane)) +
                    Map::byte_b(lane)) {}

    __device__ void load(int stage, int step, int buffer) {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
            ldmatrix(LayoutA::below(LayoutA::across(address_a, 2 * step), 16 * y) + stage, a[buffer][y]);
        }
#pragma unroll
        for (int x = 0; x < WN / 16; ++x) {
            const int address = LayoutB::below(LayoutB::across(address_b, Map::fragment_b(x)), depth * step);
            Map::template load_b<LayoutB>(address, stage, b[buffer][x]);
        }
    }

    __device__ void multiply(int buffer) {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) Map::mma(accumulator[y][x], a[buffer][y], b[buffer][x]);
        }
    }

    __device__ void clear() {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) accumulator[y][x][0] = accumulator[y][x][1] = {};
        }
    }

    // Calls act(row, column, values) for the lane's pairs in the eight rows from 8 * rows on.
    template <class Act>
    __device__ void for_each_pair(int rows, int lane, Act act) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) {
                const int pair = rows % 2 * 2 + half;
                const float value[2] = {Map::pair_value(accumulator[rows / 2][x], pair, 0),
                                        Map::pair_value(accumulator[rows / 2][x], pair, 1)};
                act(Map::pair_row(half, lane), Map::pair_column(half, x, lane), value);
            }
        }
    }
};
