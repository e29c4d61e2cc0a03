// The epilogue of a warpgroup, C = alpha * accumulator + beta * C, for Fragments x 64 rows of Columns
// (wgmma.cuh says which thread holds what) and a C of m x n with an even number of columns. What lies outside
// of C is not stored.
//   store_direct   every thread writes its pairs to global memory: four lanes fill sixteen bytes of a row.
//   TmaStoreRing   64 rows x 128 bytes at a time go through shared memory (stmatrix, conflict-free by the
//                  swizzle). TMA writes them to C while the warpgroup goes on; a warpgroup has a ring of
//                  Stages such buffers.
#pragma once

#include "epilogue/pack.cuh"
#include "mma/operand_tile.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"
#include "types/index.cuh"

// C, m x n, with the factors of a GEMM.
template <class Value>
struct MatrixC {
    Value* c;
    int m, n;
    float alpha, beta;
};

// Calls act(place in C, low, high) for the thread's pairs of accumulators that lie inside C, row after row.
template <class Value, int Fragments, int Registers, class Act>
__device__ inline void for_each_pair(float (&accumulator)[Fragments][Registers], Value* c, int m, int n,
                                     int first_row, int first_column, int thread, Act act) {
    const int columns_left = n - first_column - accumulator_column(thread, 0);
#pragma unroll
    for (int fragment = 0; fragment < Fragments; ++fragment) {
#pragma unroll
        for (int half = 0; half < 4; half += 2) {
            const int row = first_row + fragment * 64 + accumulator_row(thread, half);
            if (row >= m) continue;
            Value* line = c + Index(row) * n + first_column + accumulator_column(thread, 0);
#pragma unroll
            for (int i = 0; i < Registers; i += 4) {
                const int column = accumulator_column(0, i);
                if (column >= columns_left) continue;
                float &low = accumulator[fragment][i + half], &high = accumulator[fragment][i + half + 1];
                act(packed_at(line + column), low, high);
            }
        }
    }
}

// alpha * accumulator + beta * C in place. As in BLAS, beta == 0 means that C is not read.
template <class Value, int Fragments, int Registers>
__device__ inline void combine_accumulators(float (&accumulator)[Fragments][Registers],
                                            const MatrixC<Value>& result, int first_row, int first_column,
                                            int thread) {
    Value* const c = result.c;
    const int m = result.m, n = result.n;
    const float alpha = result.alpha, beta = result.beta;
    if (alpha != 1.0f) {
        for (auto& fragment : accumulator) {
            for (float& value : fragment) value *= alpha;
        }
    }
    if (beta == 0.0f) return;
    for_each_pair(accumulator, c, m, n, first_row, first_column, thread,
                  [&](typename Packed<Value>::Type* at, float& low, float& high) {
                      const float2 old = Packed<Value>::unpack(*at);
                      low += beta * old.x;
                      high += beta * old.y;
                  });
}

template <class Value, int Fragments, int Registers>
__device__ inline void store_direct(float (&accumulator)[Fragments][Registers],
                                    const MatrixC<Value>& result, int first_row, int first_column,
                                    int thread) {
    for_each_pair(accumulator, result.c, result.m, result.n, first_row, first_column, thread,
                  [&](typename Packed<Value>::Type* at, float low, float high) {
                      *at = Packed<Value>::pack(low, high);
                  });
}

// C = beta * C, where K is 0 and no wgmma would write the accumulators. Called by all threads of the grid.
template <class Value>
__device__ inline void scale_c(Value* c, int m, int n, float beta) {
    const Index block = Index(blockIdx.y) * gridDim.x + blockIdx.x;
    const Index threads = Index(gridDim.x) * gridDim.y * blockDim.x;
#pragma unroll 1
    for (Index i = block * blockDim.x + threadIdx.x; i < Index(m) * n; i += threads) {
        c[i] = from_float<Value>(beta != 0.0f ? beta * to_float(c[i]) : 0.0f);
    }
}

// The buffers of one warpgroup, of 64 rows x 128 bytes. Where the columns are no multiple of 128 bytes, a
// buffer is several copies of TMA, each of a box 64 or 32 bytes wide, and the tile's last buffer has fewer of
// them. Where a tile has fewer than Columns and its last box would be cut, that box begins earlier: what it
// shares with the one before is stored twice. `next` is the buffer that is written next; it is the same in
// all threads of the warpgroup.
template <class Value, int Columns, int Stages>
struct TmaStoreRing {
    static constexpr int line = Columns * sizeof(Value) % 128 == 0  ? 128
                                : Columns * sizeof(Value) % 64 == 0 ? 64
                                                                    : 32;
    static constexpr int box_columns = line / sizeof(Value), box_bytes = 64 * line, per_buffer = 128 / line;
    static_assert(Columns % box_columns == 0, "a box of TMA is whole");

    alignas(1024) unsigned char buffer[Stages][per_buffer][box_bytes];

    // Where in a box a thread's row address lies for the stmatrix that stores registers i to i + 7. Its four
    // matrices are the two halves of the warp's sixteen rows, then the same of the eight columns beside them.
    __host__ __device__ static constexpr int matrix_line(int thread, int i) {
        return swizzled<line>(thread / 32 * 16 + thread % 16,
                              (accumulator_column(0, i) + thread % 32 / 16 * 8) * 2);
    }

    // A box: 64 rows of `box_columns` accumulators from accumulator[first] on.
    template <int Registers>
    __device__ static void fill(unsigned char* to, const float (&accumulator)[Registers], int first,
                                int thread) {
        if constexpr (sizeof(Value) == 2) {
#pragma unroll
            for (int i = 0; i < box_columns / 2; i += 8) {
                unsigned word[4];
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    word[w] = Packed<Value>::pack(accumulator[first + i + 2 * w],
                                                  accumulator[first + i + 2 * w + 1]);
                }
                stmatrix(to + matrix_line(thread, i), word);
            }
        } else {
#pragma unroll
            for (int i = 0; i < box_columns / 2; i += 2) {
                unsigned char* at = to + swizzled<line>(accumulator_row(thread, i),
                                                        accumulator_column(thread, i) * sizeof(Value));
                *packed_at(reinterpret_cast<Value*>(at)) =
                    Packed<Value>::pack(accumulator[first + i], accumulator[first + i + 1]);
            }
        }
    }

    // All threads of the warpgroup, whose barrier is `barrier`; thread 0 starts the copies and waits for
    // them.
    template <Evict Policy = Evict::normal, int Fragments, int Registers>
    __device__ void store(const float (&accumulator)[Fragments][Registers], const TensorMap& map,
                          int first_row, int first_column, int thread, int barrier, int& next) {
        constexpr int box_registers = box_columns / 2, buffer_registers = per_buffer * box_registers;
        static_assert(Registers >= box_registers, "a box at least");
#pragma unroll
        for (int fragment = 0; fragment < Fragments; ++fragment) {
#pragma unroll
            for (int begin = 0; begin < Registers; begin += buffer_registers) {
                const int first = const_min(begin, Registers - box_registers);
                const int count = const_min(per_buffer, (Registers - first) / box_registers);
                if (thread == 0) wait_for_store_reads<Stages - 1>();
                warpgroup_barrier(barrier);  // TMA has read what this buffer held before
#pragma unroll
                for (int box = 0; box < count; ++box) {
                    fill(buffer[next][box], accumulator[fragment], first + box * box_registers, thread);
                }
                fence_async_proxy();
                warpgroup_barrier(barrier);  // the buffer is written
                if (thread == 0) {
#pragma unroll
                    for (int box = 0; box < count; ++box) {
                        const int column = first_column + (first + box * box_registers) * 2;
                        tma_store<Policy>(map, first_row + fragment * 64, column, buffer[next][box]);
                    }
                    commit_stores();
                }
                next = next + 1 == Stages ? 0 : next + 1;
            }
        }
    }
};
