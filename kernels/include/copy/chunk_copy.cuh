// A thread's share of a Rows x Columns tile that walks over a row-major matrix: 16-byte chunks, copied from
// global into shared memory asynchronously (cp.async) or through registers. Neighbouring threads take
// neighbouring chunks of a row. Outside the matrix the tile is filled with zeros, which add nothing to the
// sums. The matrix needs a number of columns that makes whole chunks, so that a chunk is inside or outside as
// a whole and rows start on sixteen bytes.
#pragma once

#include "layout/chunk_layout.cuh"
#include "ptx/async_copy.cuh"
#include "types/element.cuh"
#include "types/index.cuh"

template <class Element, int Rows, int Columns, class Layout, int Threads>
class ChunkCopy {
    static constexpr int chunks = Columns / per_chunk<Element>;  // of a row
    static constexpr int step = Threads / chunks;                // rows between two chunks of a thread
    static_assert(Threads % chunks == 0 && (step & (step - 1)) == 0 && Rows % step == 0,
                  "a thread's chunks lie below each other, a power of two of rows apart");

    const Element* from;  // the thread's first chunk in the tile that is copied next
    Index pitch;          // elements between two chunks of the thread
    int rows_left, columns_left;  // of the matrix, from that chunk on
    int to;                       // bytes from the tile's start to its place

  public:
    static constexpr int per_thread = Rows / step;
    static constexpr int bytes = Rows * Layout::pitch;

    __device__ ChunkCopy(const Element* matrix, int rows, int columns, Index first_row, int first_column,
                         int thread) {
        const int row = thread / chunks;
        const int column = first_column + thread % chunks * per_chunk<Element>;
        from = matrix + (first_row + row) * columns + column;
        pitch = Index(step) * columns;
        rows_left = static_cast<int>(rows - first_row) - row;
        columns_left = columns - column;
        to = Layout::offset(row, thread % chunks);
    }

    // Part `part` of `parts` of the thread's chunks.
    __device__ void start(unsigned tile, int part, int parts) const {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            if (i * parts / per_thread != part) continue;
            copy_async<chunk_bytes>(tile + Layout::below(to, i * step), from + i * pitch, inside(i));
        }
    }

    __device__ void copy(char* tile) const {
        uint4 chunk[per_thread];
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            chunk[i] = make_uint4(0, 0, 0, 0);
            if (inside(i)) chunk[i] = *reinterpret_cast<const uint4*>(from + i * pitch);
        }
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            *reinterpret_cast<uint4*>(tile + Layout::below(to, i * step)) = chunk[i];
        }
    }

    // On to the tile to the right, or below.
    __device__ void advance_right() {
        from += Columns;
        columns_left -= Columns;
    }
    __device__ void advance_down() {
        from += per_thread * pitch;
        rows_left -= Rows;
    }

  private:
    __device__ bool inside(int i) const { return i * step < rows_left && columns_left > 0; }
};
