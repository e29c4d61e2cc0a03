// What a thread of an fp32 GEMM does with a pair of tiles in shared memory: load its fragments of one K step, multiply
// each value of A's column by each value of B's row, and add to its TM x TN sums.
#pragma once

#include "fragment.cuh"

//   column   the column of A is in registers before it is multiplied.
//   element  one value of A at a time is, multiplied with the whole row of B.
enum class Operand { column, element };

//   rows     row after row, each from left to right.
//   snake    every other row from right to left: from one FFMA to the next only one of the two operands changes, and
//            the other one is in the register reuse cache. An FFMA that reads three registers takes a second cycle, and
//            so does one that reads two registers of the same register bank.
//   columns  the same down and up the columns.
enum class Walk { rows, snake, columns };

// Row and column of a thread's FFMA number i.
struct Place {
    int y, x;
};

template <Walk Order, int TM, int TN>
__host__ __device__ constexpr Place place_of(int i) {
    if (Order == Walk::columns) {
        const int x = i / TM;
        return {x % 2 == 0 ? i % TM : TM - 1 - i % TM, x};
    }
    const int y = i / TN;
    return {y, Order == Walk::snake && y % 2 == 1 ? TN - 1 - i % TN : i % TN};
}

template <int TM, int TN, int Steps, int Buffers, class LayoutA, class LayoutB, class AlongA, class AlongB, bool TransposeA,
          Operand OfA, Walk Order, bool Fenced>
struct ThreadProduct {
    static constexpr int steps = Steps;
    float sum[TM][TN] = {};

    // `tile_a`, `tile_b`: where the tiles of the first stage lie. row, column: the thread's place in the grid of
    // threads.
    __device__ ThreadProduct(const char* tile_a, const char* tile_b, int row, int column)
        : tile_a(tile_a), tile_b(tile_b), row(row), column(column) {
        origin_a = tile_a + 4 * LayoutA::index(0, AlongA::first(row));
        origin_b = tile_b + 4 * LayoutB::index(0, AlongB::first(column));
    }

    // Fragments of a step of the stage that begins `stage` bytes behind the first one.
    __device__ void load(int stage, int step, int buffer) {
        const float *from_a = words_at(tile_a + stage), *from_b = words_at(tile_b + stage);
        if constexpr (OfA == Operand::element) {
            element = LayoutA::at(from_a, 0, step);
        } else if constexpr (TransposeA) {
            load_along_row<LayoutA, AlongA>(a[buffer], from_a, words_at(origin_a + stage), step, row);
        } else {
            load_down_column<LayoutA, AlongA>(a[buffer], from_a, step, row);
        }
        load_along_row<LayoutB, AlongB>(b[buffer], from_b, words_at(origin_b + stage), step, column);
        if (Fenced) __syncwarp();  // without it the compiler moves the loads next to their use
    }

    __device__ void multiply(int buffer) {
#pragma unroll
        for (int i = 0; i < TM * TN; ++i) {
            const Place at = place_of<Order, TM, TN>(i);
            if (OfA == Operand::element && i % TN == 0) {
                a[buffer][at.y] = *LayoutA::at(static_cast<const volatile float*>(element), AlongA::position(row, at.y), 0);
            }
            sum[at.y][at.x] += a[buffer][at.y] * b[buffer][at.x];
        }
    }

    // use(row, column, sums) for each Group neighbouring sums of the thread. row, column: their place in the block
    // tile.
    template <int Group, class Use>
    __device__ void for_each_group(Use use) const {
#pragma unroll
        for (int y = 0; y < TM; ++y) {
#pragma unroll
            for (int x = 0; x < TN; x += Group) {
                use(AlongA::position(row, y), AlongB::position(column, x), sum[y] + x);
            }
        }
    }

  private:
    __device__ static const float* words_at(const char* bytes) { return reinterpret_cast<const float*>(bytes); }

    const char *tile_a, *tile_b, *origin_a, *origin_b;
    const float* element;
    int row, column;
    float a[Buffers][TM], b[Buffers][TN];
};
