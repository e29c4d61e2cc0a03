// The way of a warp's sums into C through shared memory (the epilogue of cutlass): a few rows at a time are written in
// the order of the fragments and read along the rows, sixteen bytes of C a lane, so that a warp stores whole lines. One
// slab per warp.
#pragma once

#include "element.cuh"
#include "index.cuh"

// direct      straight from the registers.
// fragment    through a slab, 16 columns at a time.
// collective  through a slab, all columns of the warp at a time.
enum class Store { direct, fragment, collective };

constexpr int slab_rows = 16;      // of WMMA, which lays down whole fragments
constexpr int slab_rows_mma = 8;   // of mma.sync: half a fragment, for a smaller slab

// The pitch, in sums. Rows of 16-bit fragments lie in different banks, because they are eight words longer. Rows of
// tf32 fragments, of which one access takes every second, conflict as little as rows that start on sixteen bytes can.
template <class Element, int Columns>
constexpr int slab_pitch = Columns + per_chunk<Element>;

// Count neighbouring sums of a lane, at once.
template <int Count>
__device__ inline void lay_down(float* to, const float (&sum)[Count]) {
    Neighbours<float, Count> out;
#pragma unroll
    for (int i = 0; i < Count; ++i) out.value[i] = sum[i];
    store_neighbours<Count>(to, out);
}

// C = alpha * slab + beta * C. Rows and columns outside C are left out. Called by a whole warp.
template <int Columns, int Rows = slab_rows, class Element, class Sum>
__device__ inline void store_slab(Element* c, int m, int n, Index first_row, Index first_column, const Sum* slab,
                                  float alpha, float beta) {
    constexpr int width = per_chunk<Element>;
    constexpr int chunks = Columns / width;
#pragma unroll
    for (int chunk = threadIdx.x % 32; chunk < Rows * chunks; chunk += 32) {
        const Index row = first_row + chunk / chunks;
        const Index column = first_column + chunk % chunks * width;
        if (row >= m || column >= n) continue;
        const Sum* from = slab + chunk / chunks * slab_pitch<Element, Columns> + chunk % chunks * width;
        float sum[width];
#pragma unroll
        for (int i = 0; i < width; ++i) sum[i] = to_float(from[i]);
        blend_neighbours(c + row * n + column, sum, alpha, beta);
    }
}

// All sums of a WM x WN warp tile through the warp's slab. `warp` hands out neighbours by for_each_run (mma_warp.cuh).
template <int WM, int WN, class Warp, class Element>
__device__ inline void store_collectively(const Warp& warp, float* slab, Element* c, int m, int n, Index row, Index column,
                                          int lane, float alpha, float beta) {
    constexpr int pitch = slab_pitch<Element, WN>, rows = slab_rows_mma;
#pragma unroll
    for (int block = 0; block < WM / rows; ++block) {
        warp.for_each_run(block, lane, [&](int at_row, int at_column, const float(&sum)[2]) {
            lay_down(slab + at_row * pitch + at_column, sum);
        });
        __syncwarp();
        store_slab<WN, rows>(c, m, n, row + rows * block, column, slab, alpha, beta);
        __syncwarp();  // the slab has been read
    }
}
