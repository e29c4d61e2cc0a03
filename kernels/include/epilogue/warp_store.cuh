// The epilogue of a warp through shared memory (after cutlass): a few rows of accumulators at a time are
// written in the order of the fragments and read along the rows, sixteen bytes of C a lane, so that a warp
// stores whole lines. Each warp has a part of shared memory for them, shared_c.
#pragma once

#include "epilogue/combine.cuh"
#include "types/index.cuh"

// Rows of shared_c. WMMA stores whole fragments; for mma.sync half a fragment will do, in less shared memory.
constexpr int shared_rows_wmma = 16, shared_rows_mma = 8;

// The pitch, in accumulators. Rows of 16-bit fragments lie in different banks, because they are eight words
// longer. Rows of tf32 fragments, of which one access takes every second, conflict as little as rows that
// start on sixteen bytes can.
template <class Element, int Columns>
constexpr int shared_pitch = Columns + per_chunk<Element>;

// Count accumulators of a lane side by side, at once.
template <int Count>
__device__ inline void store_shared(float* to, const float (&accumulator)[Count]) {
    Vector<float, Count> out;
#pragma unroll
    for (int i = 0; i < Count; ++i) out.value[i] = accumulator[i];
    store_vector<Count>(to, out);
}

// C = alpha * accumulator + beta * C for Rows of shared_c. Rows and columns outside C are left out. Called by
// a whole warp.
template <int Columns, int Rows = shared_rows_wmma, class Element, class Accumulator>
__device__ inline void store_rows(Element* c, int m, int n, Index first_row, Index first_column,
                                  const Accumulator* shared_c, float alpha, float beta) {
    constexpr int width = per_chunk<Element>;
    constexpr int chunks = Columns / width;
#pragma unroll
    for (int chunk = threadIdx.x % 32; chunk < Rows * chunks; chunk += 32) {
        const Index row = first_row + chunk / chunks;
        const Index column = first_column + chunk % chunks * width;
        if (row >= m || column >= n) continue;
        const Accumulator* from =
            shared_c + chunk / chunks * shared_pitch<Element, Columns> + chunk % chunks * width;
        float accumulator[width];
#pragma unroll
        for (int i = 0; i < width; ++i) accumulator[i] = to_float(from[i]);
        store_combined(c + row * n + column, accumulator, alpha, beta);
    }
}

// All accumulators of a WM x WN warp tile, through the warp's shared_c. `warp` hands out pairs by
// for_each_pair (mma/mma_warp.cuh).
template <int WM, int WN, class Warp, class Element>
__device__ inline void store_collectively(const Warp& warp, float* shared_c, Element* c, int m, int n,
                                          Index row, Index column, int lane, float alpha, float beta) {
    constexpr int pitch = shared_pitch<Element, WN>, rows = shared_rows_mma;
#pragma unroll
    for (int part = 0; part < WM / rows; ++part) {
        warp.for_each_pair(part, lane, [&](int at_row, int at_column, const float(&accumulator)[2]) {
            store_shared(shared_c + at_row * pitch + at_column, accumulator);
        });
        __syncwarp();
        store_rows<WN, rows>(c, m, n, row + rows * part, column, shared_c, alpha, beta);
        __syncwarp();  // shared_c has been read
    }
}
