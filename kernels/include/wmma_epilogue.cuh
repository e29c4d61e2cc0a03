// C = alpha * sum + beta * C for one 16 x 16 accumulator of a warp, with 16-bit C.
// Which lane holds which element of a fragment is not specified, and differs between fp32 and 16-bit accumulators, so the
// sums go through shared memory; there each lane takes eight neighbours of a row and writes sixteen bytes. Rows and
// columns outside C are left out. beta == 0 never reads C. Called by a whole warp.
#pragma once

#include <mma.h>

#include "element.cuh"
#include "index.cuh"

template <class Element>
__device__ inline void store_accumulator(
    Element* c, int m, int n, Index first_row, Index first_column, float (&stage)[256],
    const nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>& sum, float alpha, float beta) {
    __syncwarp();  // the fragment before this one has been read from the stage
    nvcuda::wmma::store_matrix_sync(stage, sum, 16, nvcuda::wmma::mem_row_major);
    __syncwarp();

    const int lane = threadIdx.x % 32;
    const Index row = first_row + lane / 2;
    const Index column = first_column + lane % 2 * 8;
    if (row >= m || column >= n) return;
    Element* to = c + row * n + column;
    Neighbours<Element, 8> out{};
    if (beta != 0.0f) out = load_neighbours<8>(to);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        out.value[i] = from_float<Element>(alpha * stage[lane * 8 + i] + beta * to_float(out.value[i]));
    }
    store_neighbours<8>(to, out);
}
