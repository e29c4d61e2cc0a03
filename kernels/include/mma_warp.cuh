// A warp's WM x WN part of a block tile, multiplied by mma.sync out of chunked tiles in shared memory
// (chunk_layout.cuh), in pieces of 16 x 16 that take two instructions.
//
// Both operands lie as in memory: A along the depth, B along the columns. ldmatrix loads fragments of A, and,
// transposed, fragments of a 16-bit B. It cannot transpose 32-bit elements, so tf32 computes C^T = B^T A^T. There B is
// the wide operand, of four words a lane, and two neighbouring columns of a row of B are two neighbouring words: one
// LDS.64. The columns of a piece are numbered so that the sixteen lanes of one wavefront (rows 0 to 3, four lanes each)
// read two chunks of a row, four chunks apart. Both XOR and an odd pitch put the chunks of four rows into different
// banks.
#pragma once

#include "chunk_layout.cuh"
#include "mma.cuh"
#include "shared_read.cuh"

// Where a lane finds its words of a fragment, and where its sums of a piece belong: runs 0 to 3 of two neighbours in a
// row, of which 0 and 1 lie in the upper eight rows.
template <class Element>
struct FragmentMap {
    __host__ __device__ static constexpr int row_a(int lane) { return lane % 16; }
    __host__ __device__ static constexpr int chunk_a(int lane) { return lane / 16; }
    __host__ __device__ static constexpr int row_b(int lane) { return lane % 16; }
    __host__ __device__ static constexpr int chunk_b(int lane) { return lane / 16; }
    __host__ __device__ static constexpr int byte_b(int) { return 0; }
    // Chunks from piece 0 to piece x.
    __host__ __device__ static constexpr int piece_b(int x) { return 2 * x; }

    __host__ __device__ static constexpr int run_row(int run, int lane) { return lane / 4 + run / 2 * 8; }
    __host__ __device__ static constexpr int run_column(int run, int x, int lane) {
        return 16 * x + run % 2 * 8 + lane % 4 * 2;
    }

    template <class Layout>
    __device__ static void load_b(int address, int stage, unsigned (&b)[4]) {
        load_matrices_transposed(address + stage, b);
    }

    template <class Sum>
    __device__ static void multiply(Accumulator<Sum> (&sum)[2], const unsigned (&a)[4], const unsigned (&b)[4]) {
        Mma<Element, Sum>::multiply(sum[0], a, b[0], b[1]);
        Mma<Element, Sum>::multiply(sum[1], a, b[2], b[3]);
    }

    template <class Sum>
    __device__ static float run_value(const Accumulator<Sum> (&sum)[2], int run, int i) {
        return sum[run % 2].value(run / 2 * 2 + i);
    }
};

template <>
struct FragmentMap<float> {
    __host__ __device__ static constexpr int row_a(int lane) { return lane % 8 + lane / 16 * 8; }
    __host__ __device__ static constexpr int chunk_a(int lane) { return lane / 8 % 2; }
    __host__ __device__ static constexpr int row_b(int lane) { return lane % 4; }
    __host__ __device__ static constexpr int chunk_b(int lane) { return lane / 8 % 2 * 4 + lane / 16; }
    __host__ __device__ static constexpr int byte_b(int lane) { return lane / 4 % 2 * 8; }
    __host__ __device__ static constexpr int piece_b(int x) { return x % 2 * 2 + x / 2 * 8; }

    __host__ __device__ static constexpr int run_row(int run, int lane) { return run / 2 * 8 + lane % 4 * 2 + run % 2; }
    __host__ __device__ static constexpr int run_column(int, int x, int lane) {
        return (piece_b(x) + chunk_b(lane)) * 4 + byte_b(lane) / 4;
    }

    template <class Layout>
    __device__ static void load_b(int address, int stage, unsigned (&b)[4]) {
        load_pair(address + stage, b[0], b[1]);
        load_pair(Layout::below(address, 4) + stage, b[2], b[3]);
    }

    __device__ static void multiply(Accumulator<float> (&sum)[2], const unsigned (&a)[4], const unsigned (&b)[4]) {
        Mma<float, float>::multiply(sum[0], b, a[0], a[1]);
        Mma<float, float>::multiply(sum[1], b, a[2], a[3]);
    }

    __device__ static float run_value(const Accumulator<float> (&sum)[2], int run, int i) {
        return sum[run / 2].value(run % 2 + 2 * i);
    }
};

template <class Element, class Sum, int WM, int WN, int BK, class LayoutA, class LayoutB, int Buffers>
struct MmaWarp {
    using Map = FragmentMap<Element>;
    static constexpr int depth = 2 * per_chunk<Element>;  // of one mma
    static constexpr int steps = BK / depth;

    int address_a, address_b;  // of the lane's first words in the tiles of stage 0
    unsigned a[Buffers][WM / 16][4], b[Buffers][WN / 16][4];
    Accumulator<Sum> sum[WM / 16][WN / 16][2];

    __device__ MmaWarp(unsigned tile_a, unsigned tile_b, int row, int column, int lane)
        : address_a(tile_a + LayoutA::offset(row + Map::row_a(lane), Map::chunk_a(lane))),
          address_b(tile_b + LayoutB::offset(Map::row_b(lane), column / per_chunk<Element> + Map::chunk_b(lane)) +
                    Map::byte_b(lane)) {}

    __device__ void load(int stage, int step, int buffer) {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
            load_matrices(LayoutA::below(LayoutA::across(address_a, 2 * step), 16 * y) + stage, a[buffer][y]);
        }
#pragma unroll
        for (int x = 0; x < WN / 16; ++x) {
            const int piece = LayoutB::below(LayoutB::across(address_b, Map::piece_b(x)), depth * step);
            Map::template load_b<LayoutB>(piece, stage, b[buffer][x]);
        }
    }

    __device__ void multiply(int buffer) {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) Map::multiply(sum[y][x], a[buffer][y], b[buffer][x]);
        }
    }

    __device__ void clear() {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) sum[y][x][0] = sum[y][x][1] = {};
        }
    }

    // Calls store(row, column, pair) for the lane's runs in the rows 8 * block and following.
    template <class Store>
    __device__ void for_each_run(int block, int lane, Store store) const {
#pragma unroll
        for (int run = 0; run < 2; ++run) {
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) {
                const int of_piece = block % 2 * 2 + run;
                const float pair[2] = {Map::run_value(sum[block / 2][x], of_piece, 0),
                                       Map::run_value(sum[block / 2][x], of_piece, 1)};
                store(Map::run_row(run, lane), Map::run_column(run, x, lane), pair);
            }
        }
    }
};
