// A warp's WM x WN part of a block tile, multiplied through WMMA in fragments of 16 x 16, out of tiles whose
// rows lie a fixed pitch apart. A WMMA load computes every address from a base and a stride, so it can read a
// padded tile but not an XOR-swizzled one (gemm-practice).
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/wmma.cuh"

// PitchA, PitchB: elements between two rows of the tiles.
template <class Element, class Accumulator, int WM, int WN, int BK, int PitchA, int PitchB, int Buffers>
struct WmmaWarp {
    static constexpr int depth = 2 * per_chunk<Element>;  // of one fragment
    static constexpr int steps = BK / depth;
    static constexpr int element = sizeof(Element);

    unsigned tile_a, tile_b;  // the warp's corner of the tiles of stage 0
    WmmaFragment<Element> a[Buffers][WM / 16], b[Buffers][WN / 16];
    WmmaAccumulator<Accumulator, depth> accumulator[WM / 16][WN / 16];

    __device__ WmmaWarp(unsigned tile_a, unsigned tile_b, int row, int column)
        : tile_a(tile_a + row * PitchA * element), tile_b(tile_b + column * element) {}

    __device__ void load(int stage, int step, int buffer) {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
            const int at = (16 * y * PitchA + step * depth) * element;
            a[buffer][y].load_a(tile_a + stage + at, PitchA);
        }
#pragma unroll
        for (int x = 0; x < WN / 16; ++x) {
            const int at = (step * depth * PitchB + 16 * x) * element;
            b[buffer][x].load_b(tile_b + stage + at, PitchB);
        }
    }

    __device__ void multiply(int buffer) {
#pragma unroll
        for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) accumulator[y][x].mma(a[buffer][y], b[buffer][x]);
        }
    }

    // Stores the accumulators of rows 16 * y and following, columns first .. first + Columns - 1, to the
    // warp's shared_c, whose rows lie Pitch accumulators apart.
    template <int Columns, int Pitch>
    __device__ void store_shared(Accumulator* shared_c, int y, int first) const {
#pragma unroll
        for (int x = 0; x < Columns / 16; ++x) {
            accumulator[y][first / 16 + x].store(shared_address(shared_c + 16 * x), Pitch);
        }
    }
};
