// Split K over the grid: the sum of the partial sums that several blocks hold of the same elements of C,
// where the blocks need not run at the same time. Each leaves its sums in global memory and counts itself.
// The last one to come adds up all, its own among them, in the order of the slices: nobody waits, and the
// order of the additions is always the same. A counter is zero before and after a launch.
//
// A cluster adds up without global memory (cluster_sum.cuh), but its blocks start together within one GPC.
// Where a block takes a whole multiprocessor, clusters of four or eight leave some multiprocessors idle, and
// the last clusters wait for a second wave.
#pragma once

#include "types/index.cuh"
#include "types/vector.cuh"

// Counts this block, and says whether it is the last of `slices`. If so, it sees the sums of all.
// Called by all threads of the block, behind their writes. The increment wraps around to zero.
__device__ inline bool is_last_slice(unsigned* arrived, int slices) {
    bool last = false;
    __syncthreads();  // the sums of all threads are written
    if (threadIdx.x == 0) {
        unsigned before;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(arrived), "r"(slices - 1)
                     : "memory");
        last = before + 1 == slices;
    }
    return __syncthreads_or(last);
}

// Adds up tiles of Rows x Columns that lie one behind the other at `sums`, one of each slice, and calls
// act(row, column, sums) for each vector of four in the block's share of the rows: `rank` of `blocks`, as the
// blocks of a cluster share them. Called by Threads threads.
template <int Rows, int Columns, int Threads, class Act>
__device__ inline void for_each_sum_of_grid(const float* sums, int slices, int blocks, int rank, int thread,
                                            Act act) {
    constexpr int batch = 16;  // loads under way at a time
    const int share = ceil_div(Rows, blocks);
    const int begin = rank * share, end = const_min(begin + share, Rows);
    for (int i = begin * Columns + 4 * thread; i < end * Columns; i += 4 * Threads) {
        Vector<float, 4> sum{};
#pragma unroll 1
        for (int first = 0; first < slices; first += batch) {
            Vector<float, 4> more[batch] = {};
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                const int slice = first + j;
                if (slice < slices) more[j] = load_vector<4>(sums + Index(slice) * (Rows * Columns) + i);
            }
#pragma unroll
            for (int j = 0; j < batch; ++j) {
#pragma unroll
                for (int w = 0; w < 4; ++w) sum.value[w] += more[j].value[w];
            }
        }
        act(i / Columns, i % Columns, sum.value);
    }
}

// The accumulators of Threads threads of a block, summed over `slices` blocks whose threads of the same
// number hold the same elements. Returns true in the last block, which has the sum. sums: room for the
// accumulators of all blocks, aligned to 16 bytes. They lie vector by vector, so that a warp fills whole
// lines.
template <int Threads, int Count>
__device__ inline bool take_sum_of_grid(float (&accumulator)[Count], float* sums, unsigned* arrived,
                                        int slice, int slices, int thread) {
    constexpr Index pitch = Index(Threads) * Count;
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
        const Vector<float, 4> four{
            {accumulator[i], accumulator[i + 1], accumulator[i + 2], accumulator[i + 3]}};
        store_vector(sums + slice * pitch + (i / 4 * Threads + thread) * 4, four);
    }
    if (!is_last_slice(arrived, slices)) return false;
#pragma unroll
    for (int i = 0; i < Count; ++i) accumulator[i] = 0.0f;
#pragma unroll 1
    for (int from = 0; from < slices; ++from) {
#pragma unroll
        for (int i = 0; i < Count; i += 4) {
            const auto four = load_vector<4>(sums + from * pitch + (i / 4 * Threads + thread) * 4);
#pragma unroll
            for (int w = 0; w < 4; ++w) accumulator[i + w] += four.value[w];
        }
    }
    return true;
}
