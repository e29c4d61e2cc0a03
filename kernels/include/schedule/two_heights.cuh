// Tiles of two heights, so that a launch ends in a full wave. Tiles that are all alike take as many waves
// as ceil(tiles / multiprocessors), and some multiprocessors have none in the last one. Here the grid has a
// tile for each multiprocessor in every wave. C needs fewer, so some are shorter: a column of C has as many
// short tiles as still cover its rows. Tall ones come first: blocks start in the order of their number, and
// the short ones fill up what the tall ones leave.
//
// Where tiles do not divide by columns, the first columns have one more. A grid of no more tiles than needed
// has tall ones, and short ones only where the last tile of a column would reach beyond C. A grid of many
// more has tiles below C.
#pragma once

#include "types/index.cuh"

struct TileOfTwo {
    Index first_row;
    int column;
    bool tall;
};

template <int Tall, int Short>
struct TwoHeights {
    int rows, columns;  // of C; of tiles
    int each, longer;   // tiles in a column; first columns with one more

    __host__ __device__ constexpr TwoHeights(int rows, int columns, int tiles)
        : rows(rows), columns(columns), each(tiles / columns), longer(tiles % columns) {}

    // Tall tiles in a column of `tiles`.
    __host__ __device__ constexpr int tall_of(int tiles) const {
        const Index short_ones = (Index(tiles) * Tall - rows) / (Tall - Short);
        return short_ones < tiles ? static_cast<int>(tiles - short_ones) : 0;
    }

    __host__ __device__ constexpr TileOfTwo tile(int number) const {
        // Longer columns have fewer tall tiles, because more of theirs are short.
        const int tall = tall_of(each), fewer = tall_of(each + 1);
        const int all_tall = fewer * longer + tall * (columns - longer);
        if (number < all_tall) {
            const Place at = place(number, longer == 0 ? tall : fewer, longer, columns - longer);
            return {Index(at.row) * Tall, at.column, true};
        }
        const Place at = place(number - all_tall, each - tall, 0, longer);
        return {Index(at.column < longer ? fewer : tall) * Tall + Index(at.row) * Short, at.column, false};
    }

  private:
    struct Place {
        int row, column;
    };

    // Row by row: `common` rows of all columns, then rows of `width` columns from `first` on.
    __host__ __device__ constexpr Place place(int number, int common, int first, int width) const {
        const int further = number - common * columns;
        if (further < 0) return {number / columns, number % columns};
        return {common + further / width, first + further % width};
    }
};
