// C = alpha * A @ B + beta * C on tensor cores, in fp16, bf16 or tf32: a 16 x 16 tile of C per warp.
// Rung 1 of docs/ladders/tensor-cores.md: fragments from global memory.
//
// The technique: tensor cores through WMMA (gemm-practice). A warp loads a fragment of A and one of B, 32
// bytes deep, straight from global memory, and one instruction multiplies them; 16 x 16 sums stay in the
// registers of the warp. All warps of a row of tiles read the same A, all of a column the same B, each for
// itself: a fragment is multiplied once for each time that it is loaded. So expect the tensor cores to
// wait for memory nearly all the time. WMMA does not say which lane holds which sum, so sums reach C by
// way of shared memory.
//
// Element: __half, __nv_bfloat16, or float for tf32; sums are fp32. m, n and k: multiples of 16, because
// nothing guards the loads.

#include <mma.h>

#include "epilogue/warp_store.cuh"
#include "types/index.cuh"

using namespace nvcuda;

template <class Element>
struct WmmaElement { using Type = Element; };  // what WMMA calls an element
template <>
struct WmmaElement<float> { using Type = wmma::precision::tf32; };

template <class Element>
__global__ void __launch_bounds__(32)
wmma_global_fragments(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
                      int m, int n, int k, float alpha, float beta) {
    using Type = typename WmmaElement<Element>::Type;
    constexpr int depth = 2 * per_chunk<Element>;
    constexpr int pitch = shared_pitch<Element, 16>;
    alignas(32) __shared__ float shared_c[shared_rows_wmma * pitch];
    const Index row = Index(blockIdx.y) * 16, column = Index(blockIdx.x) * 16;

    wmma::fragment<wmma::accumulator, 16, 16, depth, float> accumulator;
    wmma::fill_fragment(accumulator, 0.0f);
    for (int first = 0; first < k; first += depth) {
        wmma::fragment<wmma::matrix_a, 16, 16, depth, Type, wmma::row_major> of_a;
        wmma::fragment<wmma::matrix_b, 16, 16, depth, Type, wmma::row_major> of_b;
        wmma::load_matrix_sync(of_a, a + row * k + first, k);
        wmma::load_matrix_sync(of_b, b + Index(first) * n + column, n);
        wmma::mma_sync(accumulator, of_a, of_b, accumulator);
    }

    wmma::store_matrix_sync(shared_c, accumulator, pitch, wmma::mem_row_major);
    __syncwarp();
    store_rows<16>(c, m, n, row, column, shared_c, alpha, beta);
}
