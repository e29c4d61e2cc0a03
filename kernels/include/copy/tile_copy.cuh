// A thread's share of copying tiles of a row-major fp32 matrix into shared memory, tile after tile along K:
// through registers (`fetch` starts the loads, `deposit` waits for them and stores) or without (`start`,
// cp.async). Neighbouring threads move neighbouring vectors of Width words, so that a warp's loads fall into
// whole sectors. Outside the matrix the tile is filled with zeros, which add nothing to the sums: the loop
// that computes needs no guard. Width 4 needs a matrix whose number of columns is a multiple of 4, so that a
// vector is inside or outside as a whole. Transpose: columns of the matrix become rows of the tile; a
// vector's words land in different rows, one by one. Work can be cut into parts, to be spread over the K
// steps of a tile. RowMap: which row of the matrix, from the tile's first one on, a row of the tile holds.
#pragma once

#include "layout/row_map.cuh"
#include "ptx/async_copy.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <class Layout, int Rows, int Columns, int Width, int Threads, bool Transpose = false,
          class RowMap = EveryRow>
class TileCopy {
    // Threads lie over panels of the tile: whole rows, or two vectors (a sector) wide where the tile is
    // transposed, so that the words a warp stores lie in different banks.
    static constexpr int panel =
        Transpose ? const_min(Columns / Width, const_max(8 / Width, 1)) : Columns / Width;
    static constexpr int vectors = Rows * Columns / Width;
    static constexpr int per_thread = ceil_div(vectors, Threads);
    static_assert(Columns % (panel * Width) == 0, "whole panels");
    static_assert((Rows * panel) % Threads == 0 || Threads % (Rows * panel) == 0,
                  "whole panels, or parts of one");
    static_assert(Threads % panel == 0 || panel % Threads == 0, "whole rows of a panel, or parts of one");

    const float* from;  // the thread's first vector
    Index pitch;
    int rows_left, columns_left;  // from there to the matrix's ends
    int thread;
    RowMap map;
    Vector<float, Width> staged[per_thread];

    // A thread's vectors lie a fixed distance apart: only its first depends on the thread, the steps are
    // constants.
    __device__ static constexpr int row_of(int vector) { return vector % (Rows * panel) / panel; }
    __device__ static constexpr int column_of(int vector) {
        return (vector / (Rows * panel) * panel + vector % panel) * Width;
    }
    __device__ static constexpr int row_step(int i) { return row_of(i * Threads); }
    __device__ static constexpr int column_step(int i) { return column_of(i * Threads); }
    __device__ int row(int i) const { return row_of(thread) + row_step(i); }
    __device__ int column(int i) const { return column_of(thread) + column_step(i); }

    // The last round may have fewer vectors than threads; where it has not, this folds to true.
    __device__ bool mine(int i) const { return vectors % Threads == 0 || thread + i * Threads < vectors; }
    // Rows of the matrix from the thread's first vector to its vector i.
    __device__ int below(int i) const { return map.step(row(0), row_step(i)); }
    __device__ bool inside(int i) const { return below(i) < rows_left && column_step(i) < columns_left; }
    __device__ const float* source(int i) const { return from + below(i) * pitch + column_step(i); }

    // Row and column of the tile where word w of vector i goes.
    __device__ int to_row(int i, int w) const { return Transpose ? column(i) + w : row(i); }
    __device__ int to_column(int i, int w) const { return Transpose ? row(i) : column(i) + w; }
    // Words of a vector that lie side by side in the tile.
    static constexpr int together = Transpose ? 1 : const_min(Width, Layout::alignment);

  public:
    static constexpr int bytes = ceil_div(Layout::words, 4) * 16;

    __device__ TileCopy(const float* matrix, int rows, int columns, Index first_row, int first_column,
                        int thread, RowMap map = {})
        : pitch(columns), thread(thread), map(map) {
        rows_left = static_cast<int>(rows - first_row) - map.row(row(0));
        columns_left = columns - first_column - column(0);
        from = matrix + (first_row + map.row(row(0))) * pitch + first_column + column(0);
    }

    __device__ void advance_right() {
        from += Columns;
        columns_left -= Columns;
    }
    __device__ void advance_down() {
        from += Rows * pitch;
        rows_left -= Rows;
    }

    __device__ void fetch() {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            staged[i] = Vector<float, Width>{};
            if (mine(i) && inside(i)) staged[i] = load_vector<Width>(source(i));
        }
    }

    // Part `part` of `parts` of the stores, spread evenly.
    __device__ void deposit(char* tile, int part, int parts) const {
        constexpr int stores = Width / together;
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
#pragma unroll
            for (int store = 0; store < stores; ++store) {
                if ((i * stores + store) * parts / (per_thread * stores) != part || !mine(i)) continue;
                Vector<float, together> words;
#pragma unroll
                for (int p = 0; p < together; ++p) words.value[p] = staged[i].value[store * together + p];
                float* to = reinterpret_cast<float*>(tile);
                store_vector(Layout::at(to, to_row(i, store * together), to_column(i, store * together)),
                             words);
            }
        }
    }

    __device__ void copy(char* tile) {
        fetch();
        deposit(tile, 0, 1);
    }

    // `tile`: address in shared memory. Four vectors a part, the rest in the last one: one by one, each would
    // wait for a hazard.
    __device__ void start(unsigned tile, int part, int parts) const {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            if (const_min(i / 4, parts - 1) != part || !mine(i)) continue;
#pragma unroll
            for (int w = 0; w < Width; w += together) {
                const unsigned to = tile + 4 * Layout::index(to_row(i, w), to_column(i, w));
                copy_async<4 * together>(to, source(i) + w, inside(i));
            }
        }
    }
};
