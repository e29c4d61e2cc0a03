// A Rows x Columns tile of a row-major fp32 matrix, from global memory through registers into shared memory.
// Neighbouring threads move neighbouring vectors of Width words, so that a warp's loads fall into whole sectors. Outside
// the matrix the tile is filled with zeros, which add nothing to a product: the loop that computes needs no guard.
// Width 4 needs a matrix whose number of columns is a multiple of 4, so that a vector is inside or outside as a whole.
#pragma once

#include "index.cuh"
#include "words.cuh"

template <int Rows, int Columns, int Width, int Threads>
class TileCopy {
    static constexpr int vectors_per_row = Columns / Width;
    static constexpr int vectors = Rows * vectors_per_row;
    static constexpr int per_thread = ceil_div(vectors, Threads);
    static_assert(Columns % Width == 0, "whole vectors in a row");
    static_assert(Threads % vectors_per_row == 0 || vectors_per_row % Threads == 0, "whole rows, or parts of one");

    Words<Width> staged[per_thread];

    // A thread's vectors lie a fixed distance apart: only its first depends on the thread, the steps are constants.
    __device__ static int row(int thread, int i) { return thread / vectors_per_row + i * Threads / vectors_per_row; }
    __device__ static int column(int thread, int i) {
        return (thread % vectors_per_row + i * Threads % vectors_per_row) * Width;
    }

    // The last round may have fewer vectors than threads; where it has not, this folds to true.
    __device__ static bool mine(int thread, int i) { return vectors % Threads == 0 || thread + i * Threads < vectors; }

  public:
    // Starts the loads. They are waited for where `store` uses the registers.
    __device__ void load(const float* matrix, int rows, int columns, Index first_row, int first_column, int thread) {
        const int rows_left = static_cast<int>(rows - first_row);
        const int columns_left = columns - first_column;
        const float* corner = matrix + first_row * columns + first_column;
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            const bool inside =
                mine(thread, i) && row(thread, i) < rows_left && column(thread, i) < columns_left;
            staged[i] = Words<Width>{};
            if (inside) staged[i] = load_words<Width>(corner + Index(row(thread, i)) * columns + column(thread, i));
        }
    }

    template <class Layout>
    __device__ void store(float* tile, int thread) const {
        constexpr int width = lesser(Width, Layout::alignment);
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            if (!mine(thread, i)) continue;
            float* to = tile + Layout::index(row(thread, i), column(thread, i));
#pragma unroll
            for (int w = 0; w < Width; w += width) {
                Words<width> part;
#pragma unroll
                for (int p = 0; p < width; ++p) part.word[p] = staged[i].word[w + p];
                store_words(to + w, part);
            }
        }
    }

    // Columns become rows: a vector's words land in different rows, so one STS.32 each.
    template <class Layout>
    __device__ void store_transposed(float* tile, int thread) const {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            if (!mine(thread, i)) continue;
#pragma unroll
            for (int w = 0; w < Width; ++w) {
                tile[Layout::index(column(thread, i) + w, row(thread, i))] = staged[i].word[w];
            }
        }
    }
};
