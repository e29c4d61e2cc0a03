// C = alpha * A @ B + beta * C, row-major, on tensor cores: fp16, bf16 or tf32, one 16 x 16 tile of C per
// warp.
//
// The technique: tensor cores through WMMA, operands straight from global memory (gemm-practice). Every warp
// of a row or column of tiles reads the same fragments again, so the tensor cores mostly wait for memory.
//
// Element: __half, __nv_bfloat16, or float for tf32. Accumulator: float, or __half. One warp per block.

#include <mma.h>

#include "epilogue/warp_store.cuh"
#include "types/index.cuh"

using namespace nvcuda;

// What WMMA calls an element, and the depth of a fragment: 32 bytes.
template <class Element>
struct WmmaElement { using type = Element; };
template <>
struct WmmaElement<float> { using type = wmma::precision::tf32; };
template <class Element>
constexpr int depth = 2 * per_chunk<Element>;

template <class Element, class Accumulator>
__global__ void __launch_bounds__(32)
wmma_naive(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
           int m, int n, int k, float alpha, float beta) {
    using Type = typename WmmaElement<Element>::type;
    constexpr int pitch = shared_pitch<Element, 16>;
    alignas(32) __shared__ Accumulator shared_c[shared_rows_wmma * pitch];
    const Index row = Index(blockIdx.y) * 16;
    const Index column = Index(blockIdx.x) * 16;

    wmma::fragment<wmma::accumulator, 16, 16, depth<Element>, Accumulator> accumulator;
    wmma::fill_fragment(accumulator, Accumulator(0.0f));
    for (int first = 0; first < k; first += depth<Element>) {
        wmma::fragment<wmma::matrix_a, 16, 16, depth<Element>, Type, wmma::row_major> fragment_a;
        wmma::fragment<wmma::matrix_b, 16, 16, depth<Element>, Type, wmma::row_major> fragment_b;
        wmma::load_matrix_sync(fragment_a, a + row * k + first, k);
        wmma::load_matrix_sync(fragment_b, b + Index(first) * n + column, n);
        wmma::mma_sync(accumulator, fragment_a, fragment_b, accumulator);
    }

    wmma::store_matrix_sync(shared_c, accumulator, pitch, wmma::mem_row_major);
    __syncwarp();
    store_rows<16>(c, m, n, row, column, shared_c, alpha, beta);
}
