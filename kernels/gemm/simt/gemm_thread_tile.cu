// C = alpha * A @ B + beta * C in fp32, row-major: TM x TN outputs per thread, operands read from shared
// memory.
//
// The technique: a thread computes a small rectangle of outputs (hip-gemm, kernel 3; gemm-practice,
// `t_8x8_sliced_k`). Each word that it reads from shared memory serves several outputs, and as many threads
// cover a larger tile. The inner loop reads its operands from shared memory; the compiler decides which of
// them stay in registers. The next rung, gemm_staged, puts them into registers itself.
//
// BM, BN, BK: block tile, in elements. TM, TN: outputs of a thread, of neighbouring rows and columns.

#include "copy/tile_copy.cuh"
#include "epilogue/combine_fp32.cuh"
#include "layout/shared_layout.cuh"
#include "types/index.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM * BN / (TM * TN))
gemm_thread_tile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                 int m, int n, int k, float alpha, float beta) {
    constexpr int threads = BM * BN / (TM * TN);
    using LayoutA = Plain<BM, BK>;
    using LayoutB = Plain<BK, BN>;
    alignas(16) __shared__ float tile_a[LayoutA::words];
    alignas(16) __shared__ float tile_b[LayoutB::words];
    const int thread = threadIdx.x;
    const int row = thread / (BN / TN) * TM;
    const int column = thread % (BN / TN) * TN;
    const Index first_row = Index(blockIdx.y) * BM;
    const int first_column = blockIdx.x * BN;

    TileCopy<LayoutA, BM, BK, 1, threads> copy_a(a, m, k, first_row, 0, thread);
    TileCopy<LayoutB, BK, BN, 1, threads> copy_b(b, k, n, 0, first_column, thread);
    float accumulator[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
        copy_a.copy(reinterpret_cast<char*>(tile_a));
        copy_b.copy(reinterpret_cast<char*>(tile_b));
        copy_a.advance_right();
        copy_b.advance_down();
        __syncthreads();  // wait until the tiles are complete

#pragma unroll
        for (int i = 0; i < BK; ++i) {
#pragma unroll
            for (int y = 0; y < TM; ++y) {
#pragma unroll
                for (int x = 0; x < TN; ++x) {
                    accumulator[y][x] +=
                        tile_a[LayoutA::index(row + y, i)] * tile_b[LayoutB::index(i, column + x)];
                }
            }
        }
        __syncthreads();  // wait until all threads have read them
    }

#pragma unroll
    for (int y = 0; y < TM; ++y) {
#pragma unroll
        for (int x = 0; x < TN; ++x) {
            const Index out_row = first_row + row + y;
            const Index out_column = Index(first_column) + column + x;
            if (out_row >= m || out_column >= n) continue;
            float* out = c + out_row * n + out_column;
            *out = combine_fp32(accumulator[y][x], out, alpha, beta);
        }
    }
}
