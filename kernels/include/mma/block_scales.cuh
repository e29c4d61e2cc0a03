// Scales of fp8 operands by block (deepseek-v3, 3.3.2): A has a scale for each row and 128 of K, B one for
// 128 columns and 128 of K. Over 128 of K both are constants of an element of C, so that a partial sum is
// multiplied by their product when it is promoted (promotion.cuh): an fma takes the place of each addition.
#pragma once

#include "ptx/async_copy.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "types/index.cuh"

constexpr int scale_block = 128;  // of K, and of columns of B

// Scales of B in memory: for each block of N a line of its blocks of K, padded to multiples of four.
struct ScalesOfB {
    const float* first;
    int blocks, line;

    __device__ ScalesOfB(const float* first, int n, int steps)
        : first(first), blocks(ceil_div(n, scale_block)), line(ceil_div(steps, 4) * 4) {}

    __device__ const float* at(int block, int step) const { return first + Index(block) * line + step; }
};

// The scales of a stage, copied beside its tiles: of A one for each row, by TMA, and of B one for each block
// that the tile's columns lie in. A copy of TMA begins at a multiple of sixteen bytes, and has so many at
// least, so that scales of B come by cp.async, four bytes each. Its arrival at `full` is a second one.
template <int Rows, int Columns>
struct ScaleTile {
    // Tiles begin at a multiple of their width, so that runs of this many columns have one scale.
    static constexpr int run = gcd(Columns, scale_block);
    static constexpr int blocks = ceil_div(Columns + scale_block - run, scale_block);
    static constexpr int bytes = Rows * sizeof(float);  // by TMA
    static constexpr int arrivals = 2;

    alignas(128) float a[Rows];
    float b[blocks];

    // Of a tile whose first element of C is (row, column). One thread; `full` must expect `bytes`.
    __device__ void load(const TensorMap& map_a, const ScalesOfB& scales_b, int row, int column, int step,
                         Mbarrier& full) {
        tma_load(a, map_a, step, row, full);
#pragma unroll
        for (int i = 0; i < blocks; ++i) {
            const int block = column / scale_block + i;
            copy_async<4>(shared_address(&b[i]), scales_b.at(block, step), block < scales_b.blocks);
        }
        mbarrier_arrive_after_copies(full);
    }
};

// Scales in registers for a thread's partial sums, of two rows and of Runs runs of columns.
template <int Runs>
struct PartScales {
    float a[2], b[Runs];
};

// A thread's scales in the stages of a ring, for a consumer whose part of the tile begins at `row`.
template <class Tile>
struct StageScales {
    static constexpr int run = Tile::run;
    const Tile* stage;
    int row, offset;  // of the thread; of the tile's first column in its block

    __device__ StageScales(const Tile* stage, int consumer_row, int thread, int first_column)
        : stage(stage),
          row(consumer_row + accumulator_row(thread, 0)),
          offset(run == scale_block ? 0 : first_column % scale_block) {}

    // Of a part: Registers partial sums, from `fragment` rows and `column` columns on in the consumer's tile.
    // The compiler must know both.
    template <int Registers>
    __device__ auto read(int number, int fragment, int column) const {
        constexpr int columns = gcd(2 * Registers, run);
        PartScales<2 * Registers / columns> scales;
        const Tile& from = stage[number];
        scales.a[0] = from.a[row + fragment];
        scales.a[1] = from.a[row + fragment + 8];
#pragma unroll
        for (int i = 0; i < 2 * Registers / columns; ++i) {
            scales.b[i] = from.b[(offset + column + i * columns) / scale_block];
        }
        return scales;
    }
};

// Adds the partial sums of part number `part`, times their scales, to its accumulators, after wgmma_wait.
template <int Fragments, int Registers, int Partial, int Runs>
__device__ inline void promote(float (&accumulator)[Fragments][Registers], int part,
                               float (&partial)[1][Partial], const PartScales<Runs>& scales) {
    constexpr int split = Registers / Partial;
    fence_registers(partial[0]);
#pragma unroll
    for (int i = 0; i < Partial; ++i) {
        float& sum = accumulator[part / split][part % split * Partial + i];
        sum = fmaf(partial[0][i], scales.a[i / 2 % 2] * scales.b[i / (Partial / Runs)], sum);
    }
}
