// Scales of fp8 operands by block (deepseek-v3, 3.3.2): A has a scale for each row and 128 of K, B one for
// 128 columns and 128 of K. Over 128 of K both are constants of an element of C, so that a partial sum is
// multiplied by their product when it is promoted (promotion.cuh): an fma takes the place of each addition.
#pragma once

#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "types/index.cuh"

constexpr int scale_block = 128;  // of K, and of columns of B

// The scales of a stage, copied by TMA beside its tiles: of A one for each row, of B those of all blocks that
// the tile's columns lie in. A copy of TMA begins at a multiple of sixteen bytes and has so many at least, so
// that each of these comes with its neighbours along K.
template <int Rows, int Columns>
struct ScaleTile {
    // Tiles begin at a multiple of their width, so that runs of this many columns have one scale.
    static constexpr int run = gcd(Columns, scale_block);
    static constexpr int blocks = ceil_div(Columns + scale_block - run, scale_block);
    static constexpr int bytes = (Rows + 4 * blocks) * sizeof(float);

    alignas(128) float a[Rows];
    alignas(128) float b[blocks][4];

    // Of a tile whose first element of C is (row, column). One thread; `full` must expect `bytes`.
    __device__ void load(const TensorMap& map_a, const TensorMap& map_b, int row, int column, int block,
                         Mbarrier& full) {
        tma_load(a, map_a, block, row, full);
        tma_load(b, map_b, column / scale_block, block / 4 * 4, full);
    }
};

// A thread's scales of one stage in registers: of its two rows of each fragment of 64, and of the tile's
// columns, which begin `offset` behind the first of a block of B.
template <class Tile, int Fragments>
struct StepScales {
    float a[Fragments][2], b[Tile::blocks];
    int offset;

    // The scale of the run of columns from `column` on in the tile. The compiler must know `column`.
    __device__ float of_columns(int column) const {
        const int block = column / scale_block;
        if (Tile::run == scale_block || block + 1 == Tile::blocks) return b[block];
        return offset + column % scale_block < scale_block ? b[block] : b[block + 1];
    }
};

// A thread's scales in the stages of a ring, which it reads in the order of the steps of K.
template <class Tile, int Fragments>
struct StageScales {
    const Tile* stage;
    int row, offset;       // of the thread in the tile; of the tile's first column in its block
    int block, direction;  // of K: the next one, and 1 or -1

    // For a consumer whose part of the tile begins at `consumer_row`; blocks of K run from `first` on.
    __device__ StageScales(const Tile* stage, int consumer_row, int thread, int first_column, int first = 0,
                           int direction = 1)
        : stage(stage),
          row(consumer_row + accumulator_row(thread, 0)),
          offset(Tile::run == scale_block ? 0 : first_column % scale_block),
          block(first),
          direction(direction) {}

    __device__ StepScales<Tile, Fragments> read(int number) {
        StepScales<Tile, Fragments> scales;
        const Tile& from = stage[number];
#pragma unroll
        for (int fragment = 0; fragment < Fragments; ++fragment) {
            scales.a[fragment][0] = from.a[row + fragment * 64];
            scales.a[fragment][1] = from.a[row + fragment * 64 + 8];
        }
#pragma unroll
        for (int i = 0; i < Tile::blocks; ++i) scales.b[i] = from.b[i][block % 4];
        scales.offset = offset;
        block += direction;
        return scales;
    }
};

// Adds the partial sums of part number `part`, times their scales, to its accumulators, after wgmma_wait.
template <int Fragments, int Registers, int Partial, class Tile>
__device__ inline void promote(float (&accumulator)[Fragments][Registers], int part,
                               float (&partial)[1][Partial], const StepScales<Tile, Fragments>& scales) {
    constexpr int split = Registers / Partial, run = gcd(2 * Partial, Tile::run);
    const int fragment = part / split, first = part % split * Partial;
    fence_registers(partial[0]);
#pragma unroll
    for (int i = 0; i < Partial; ++i) {
        const float scale = scales.a[fragment][i / 2 % 2] * scales.of_columns((first + i) * 2 / run * run);
        float& sum = accumulator[fragment][first + i];
        sum = fmaf(partial[0][i], scale, sum);
    }
}
