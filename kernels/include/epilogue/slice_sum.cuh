// The epilogue where K is cut into slices, one per block of a cluster: warpgroups write their accumulators to
// shared memory, and each block finishes its share of the rows of C (cluster_sum.cuh). C has a multiple of 4
// columns.
#pragma once

#include "copy/shared_memory.cuh"
#include "epilogue/cluster_sum.cuh"
#include "epilogue/combine.cuh"
#include "mma/wgmma.cuh"

struct SliceSteps {
    int first, count;
};

// Steps of K that a slice takes: every step belongs to one slice, and shares differ by one at most.
__host__ __device__ constexpr SliceSteps steps_of_slice(int steps, int slice, int slices) {
    const int first = slice * steps / slices;
    return {first, (slice + 1) * steps / slices - first};
}

template <int Rows, int Columns>
struct SliceSum {
    // Rows eight words longer: the pairs that half a warp writes, four rows by four, lie in different banks.
    static constexpr int stride = Columns + 8;

    alignas(16) float word[Rows][stride];

    // Fragments x 64 rows of accumulators from (first_row, first_column) on. All threads must have read what
    // lay here before.
    template <int Fragments, int Registers>
    __device__ void store_shared(const float (&accumulator)[Fragments][Registers], int first_row,
                                 int first_column, int thread) {
#pragma unroll
        for (int fragment = 0; fragment < Fragments; ++fragment) {
#pragma unroll
            for (int i = 0; i < Registers; i += 2) {
                float* at = &word[first_row + fragment * 64 + accumulator_row(thread, i)]
                                 [first_column + accumulator_column(thread, i)];
                *reinterpret_cast<float2*>(at) =
                    make_float2(accumulator[fragment][i], accumulator[fragment][i + 1]);
            }
        }
    }

    // This block's rows of the sum over all `slices`, to C from `origin` on. Threads threads.
    template <int Threads, class Value, class Position>
    __device__ void store(Value* c, int m, int n, const Position& origin, int slices, float alpha, float beta,
                          int thread) {
        for_each_sum_of_cluster<Rows, Columns, stride, Threads>(
            shared_address(word), slices, thread, [&](int tile_row, int tile_column, const float (&sum)[4]) {
                const int row = origin.row + tile_row, column = origin.column + tile_column;
                if (row < m && column < n) store_combined<4>(c + Index(row) * n + column, sum, alpha, beta);
            });
    }
};
