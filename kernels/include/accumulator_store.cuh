// C = alpha * sum + beta * C for the accumulators of a warpgroup, Blocks x 64 rows of Columns (wgmma.cuh says which
// thread holds what), to a C of m x n with an even number of columns. What lies outside of C is not stored.
//   Store::direct  every thread writes its pairs to global memory: four lanes fill sixteen bytes of a row.
//   Store::staged  boxes of 64 rows x 128 bytes go through shared memory (stmatrix, conflict-free by the swizzle). TMA
//                  writes them to C while the warpgroup goes on; a warpgroup has a ring of Boxes.
#pragma once

#include "index.cuh"
#include "operand_tile.cuh"
#include "pair.cuh"
#include "stmatrix.cuh"
#include "warpgroup.cuh"

enum class Store { direct, staged };

// Calls act(place in C, low, high) for the thread's pairs of sums that lie inside C, row after row.
template <class Value, int Blocks, int Half, class Act>
__device__ inline void for_each_pair(float (&sum)[Blocks][Half], Value* c, int m, int n, int first_row, int first_column,
                                     int thread, Act act) {
    const int columns_left = n - first_column - sum_column(thread, 0);
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 4; half += 2) {
            const int row = first_row + block * 64 + sum_row(thread, half);
            if (row >= m) continue;
            Value* line = c + Index(row) * n + first_column + sum_column(thread, 0);
#pragma unroll
            for (int i = 0; i < Half; i += 4) {
                const int column = sum_column(0, i);
                if (column < columns_left) act(pair_at(line + column), sum[block][i + half], sum[block][i + half + 1]);
            }
        }
    }
}

// alpha * sum + beta * C in place. As in BLAS, beta == 0 means that C is not read.
template <class Value, int Blocks, int Half>
__device__ inline void blend_sums(float (&sum)[Blocks][Half], Value* c, int m, int n, int first_row, int first_column,
                                  float alpha, float beta, int thread) {
    if (alpha != 1.0f) {
        for (auto& block : sum) {
            for (float& value : block) value *= alpha;
        }
    }
    if (beta == 0.0f) return;
    for_each_pair(sum, c, m, n, first_row, first_column, thread,
                  [&](typename Pair<Value>::Words* at, float& low, float& high) {
                      const float2 old = Pair<Value>::unpack(*at);
                      low += beta * old.x;
                      high += beta * old.y;
                  });
}

template <class Value, int Blocks, int Half>
__device__ inline void store_direct(float (&sum)[Blocks][Half], Value* c, int m, int n, int first_row, int first_column,
                                    int thread) {
    for_each_pair(sum, c, m, n, first_row, first_column, thread,
                  [&](typename Pair<Value>::Words* at, float low, float high) { *at = Pair<Value>::pack(low, high); });
}

// The boxes of one warpgroup, of 64 rows x 128 bytes. Where the columns are no multiple of 128 bytes, a box is several
// copies, 64 or 32 bytes wide, and the tile's last box has fewer of them. `next` is the box that is written next; it is
// the same in all threads of the warpgroup.
template <class Value, int Columns, int Boxes>
struct StoreRing {
    static constexpr int line = Columns * sizeof(Value) % 128 == 0 ? 128 : Columns * sizeof(Value) % 64 == 0 ? 64 : 32;
    static constexpr int copy_columns = line / sizeof(Value), copy_bytes = 64 * line, box_copies = 128 / line;
    static_assert(Columns % copy_columns == 0, "whole copies");

    alignas(1024) unsigned char box[Boxes][box_copies][copy_bytes];

    // Where in a copy a thread's row address lies for the stmatrix that stores registers i to i + 7. Its four matrices
    // are the two halves of the warp's sixteen rows, then the same of the eight columns beside them.
    __host__ __device__ static constexpr int matrix_line(int thread, int i) {
        return swizzled<line>(thread / 32 * 16 + thread % 16, (sum_column(0, i) + thread % 32 / 16 * 8) * 2);
    }

    // 64 rows of `copy_columns` sums from sum[first] on.
    template <int Half>
    __device__ static void fill(unsigned char* to, const float (&sum)[Half], int first, int thread) {
        if constexpr (sizeof(Value) == 2) {
#pragma unroll
            for (int i = 0; i < copy_columns / 2; i += 8) {
                unsigned word[4];
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    word[w] = Pair<Value>::pack(sum[first + i + 2 * w], sum[first + i + 2 * w + 1]);
                }
                store_matrices(to + matrix_line(thread, i), word);
            }
        } else {
#pragma unroll
            for (int i = 0; i < copy_columns / 2; i += 2) {
                unsigned char* at = to + swizzled<line>(sum_row(thread, i), sum_column(thread, i) * sizeof(Value));
                *pair_at(reinterpret_cast<Value*>(at)) = Pair<Value>::pack(sum[first + i], sum[first + i + 1]);
            }
        }
    }

    // All threads of the warpgroup, whose barrier is `barrier`; thread 0 starts the copies and waits for them.
    template <Evict When, int Blocks, int Half>
    __device__ void store(const float (&sum)[Blocks][Half], const TensorMap& map, int first_row, int first_column,
                          int thread, int barrier, int& next) {
        constexpr int copy_sums = copy_columns / 2, box_sums = box_copies * copy_sums;
#pragma unroll
        for (int block = 0; block < Blocks; ++block) {
#pragma unroll
            for (int first = 0; first < Half; first += box_sums) {
                const int copies = lesser(box_copies, (Half - first) / copy_sums);
                if (thread == 0) wait_for_store_reads<Boxes - 1>();
                warpgroup_barrier(barrier);  // TMA has read what this box held before
#pragma unroll
                for (int copy = 0; copy < copies; ++copy) {
                    fill(box[next][copy], sum[block], first + copy * copy_sums, thread);
                }
                fence_async_proxy();
                warpgroup_barrier(barrier);  // the box is written
                if (thread == 0) {
#pragma unroll
                    for (int copy = 0; copy < copies; ++copy) {
                        const int column = first_column + (first + copy * copy_sums) * 2;
                        tma_store<When>(map, first_row + block * 64, column, box[next][copy]);
                    }
                    commit_stores();
                }
                next = next + 1 == Boxes ? 0 : next + 1;
            }
        }
    }
};
