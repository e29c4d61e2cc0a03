// Where (row, column) of a tile lies in shared memory, as policies. Shared memory has 32 banks of one word; the lanes of
// a warp are served together only where their words lie in different banks (or are the same word).
//   Plain   row after row. A column of a tile 32 words wide lies in one bank: 32 lanes down a column take 32 turns.
//   Padded  each row starts Pad words further, so that a column walks over the banks. Costs Rows * Pad words, and a Pad
//           that is no multiple of 4 takes away the alignment that 128-bit accesses need.
//   Xor     the column is XORed with the row: a permutation within the row, so it costs nothing, but neighbouring
//           columns are no longer neighbouring words.
// `alignment` is the number of words up to which an aligned group of columns may be accessed at once in every row.
#pragma once

template <int Rows, int Columns, int Pad>
struct Padded {
    static constexpr int pitch = Columns + Pad;
    static constexpr int words = Rows * pitch;
    static constexpr int alignment = pitch % 4 == 0 ? 4 : pitch % 2 == 0 ? 2 : 1;

    __host__ __device__ static constexpr int index(int row, int column) { return row * pitch + column; }
};

template <int Rows, int Columns>
using Plain = Padded<Rows, Columns, 0>;

template <int Rows, int Columns>
struct Xor {
    static_assert((Columns & (Columns - 1)) == 0, "XOR stays inside the row only for a power of two");
    static constexpr int words = Rows * Columns;
    static constexpr int alignment = 1;

    __host__ __device__ static constexpr int index(int row, int column) {
        return row * Columns + (column ^ (row % Columns));
    }
};
