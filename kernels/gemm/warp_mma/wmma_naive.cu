// C = alpha * A @ B + beta * C, row-major, 16-bit operands and result, fp32 sums: one 16 x 16 tile of C per warp.
//
// The technique: tensor cores through WMMA, operands straight from global memory (catalogue B1; text 003). Each fragment
// is read by every warp of its row or column of tiles, so the tensor cores mostly wait for memory.
//
// Element: __half or __nv_bfloat16. One warp per block.

#include <mma.h>

#include "element.cuh"
#include "index.cuh"
#include "wmma_epilogue.cuh"

using namespace nvcuda;

template <class Element>
__global__ void __launch_bounds__(32)
wmma_naive(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
           int m, int n, int k, float alpha, float beta) {
    alignas(32) __shared__ float stage[256];
    const Index row = Index(blockIdx.y) * 16;
    const Index column = Index(blockIdx.x) * 16;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int first = 0; first < k; first += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> fragment_a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major> fragment_b;
        wmma::load_matrix_sync(fragment_a, a + row * k + first, k);
        wmma::load_matrix_sync(fragment_b, b + Index(first) * n + column, n);
        wmma::mma_sync(sum, fragment_a, fragment_b, sum);
    }
    store_accumulator(c, m, n, row, column, stage, sum, alpha, beta);
}
