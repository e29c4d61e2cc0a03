// Where (row, column) of a tile lies in shared memory, as policies. Shared memory has 32 banks of one word;
// the lanes of a warp take one wavefront only where their words lie in different banks (or are the same
// word).
//   Plain        row after row. A column of a tile 32 words wide lies in one bank: 32 lanes take 32
//                wavefronts.
//   Padded       each row starts Pad words further, so that a column walks over the banks. Costs Rows * Pad
//                words. A Pad that is no multiple of 4 breaks the alignment that 128-bit accesses need.
//   Declared     the same words, reached through a two-dimensional array type.
//   Xor          the column is XORed with the row: a permutation within the row, so it costs nothing, but
//                neighbouring columns are no longer neighbouring words.
//   XorGroups    the column is XORed with the same multiple of four in four rows at a time: aligned groups of
//                four columns stay together, and the words that a transposing warp stores, four columns and
//                four rows apart, lie in different banks.
//   Interleaved  columns 0, Each, 2 * Each, ... lie side by side, then columns 1, Each + 1, ...: threads that
//                own Each adjacent columns read neighbouring words, one at a time.
// `alignment` is the number of words up to which an aligned group of columns may be accessed at once in every
// row. `index(row, first + step)` is `index(row, first) + step_words(step)` where `first` and `step` are an
// Edge's. Where `rows_alike`, it is also `index(0, first) + row * pitch + step_words(step)`: one address per
// thread serves all rows.
#pragma once

// What follows from a layout's index, and steps along a row that are as many words.
template <class Layout>
struct Indexed {
    __host__ __device__ static constexpr int step_words(int step) { return step; }

    template <class Word>
    __host__ __device__ static constexpr Word* at(Word* tile, int row, int column) {
        return tile + Layout::index(row, column);
    }
};

template <int Rows, int Columns, int Pad>
struct Padded : Indexed<Padded<Rows, Columns, Pad>> {
    static constexpr int pitch = Columns + Pad;
    static constexpr int words = Rows * pitch;
    static constexpr int alignment = pitch % 4 == 0 ? 4 : pitch % 2 == 0 ? 2 : 1;
    static constexpr bool rows_alike = true;

    __host__ __device__ static constexpr int index(int row, int column) { return row * pitch + column; }
};

template <int Rows, int Columns>
using Plain = Padded<Rows, Columns, 0>;

template <int Rows, int Columns, int Pad>
struct Declared : Padded<Rows, Columns, Pad> {
    template <class Word>
    __device__ static Word* at(Word* tile, int row, int column) {
        return &reinterpret_cast<Word(*)[Columns + Pad]>(tile)[row][column];
    }
};

template <int Rows, int Columns>
struct Xor {
    static_assert((Columns & (Columns - 1)) == 0, "XOR stays inside the row only for a power of two");
    static constexpr int words = Rows * Columns;
    static constexpr int alignment = 1;

    __host__ __device__ static constexpr int index(int row, int column) {
        return row * Columns + (column ^ (row % Columns));
    }
};

template <int Rows, int Columns>
struct XorGroups : Indexed<XorGroups<Rows, Columns>> {
    static_assert(Columns % 32 == 0 && Rows % 4 == 0 && Rows <= 32, "XOR stays inside 32 columns");
    static constexpr int pitch = Columns;
    static constexpr int words = Rows * Columns;
    static constexpr int alignment = 4;
    static constexpr bool rows_alike = false;

    __host__ __device__ static constexpr int index(int row, int column) {
        return row * Columns + (column ^ (row / 4 * (128 / Rows)));
    }
};

template <int Rows, int Columns, int Each>
struct Interleaved : Indexed<Interleaved<Rows, Columns, Each>> {
    static_assert(Columns % Each == 0, "whole groups");
    static constexpr int pitch = Columns;
    static constexpr int words = Rows * Columns;
    static constexpr int alignment = 1;
    static constexpr bool rows_alike = true;

    __host__ __device__ static constexpr int index(int row, int column) {
        return row * Columns + column % Each * (Columns / Each) + column / Each;
    }
    __host__ __device__ static constexpr int step_words(int step) { return step * (Columns / Each); }
};
