// C = alpha * A @ B + beta * C in fp32, row-major, as gemm-practice writes it: `t_8x8_sliced_k_f32x4`.
//
// The technique: tiles of 128 x 8 and 8 x 128 in shared memory, copied 16 bytes at a time, and 8 x 8 outputs
// a thread. A lies as it is, a row along K. The text says that the four values of A that a thread needs for
// one step of K lie apart, so that it takes four LDS.32. The compiler reads them otherwise: one LDS.128 along
// the row is A for four steps of K.
//
// The text has no alpha and beta; this kernel adds them. It has no bounds: m and n are multiples of 128, k of
// 8.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;

__global__ void __launch_bounds__(256)
practice_plain_a(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                 int n, int k, float alpha, float beta) {
    alignas(16) __shared__ float s_a[BM][BK], s_b[BK][BN];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int row_a = threadIdx.x / 2, column_a = threadIdx.x % 2 * 4;
    const int row_b = threadIdx.x / 32, column_b = threadIdx.x % 32 * 4;
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    float r_c[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
        store_vector(&s_a[row_a][column_a], load_vector<4>(a + (first_row + row_a) * k + first + column_a));
        store_vector(&s_b[row_b][column_b],
                     load_vector<4>(b + Index(first + row_b) * n + first_column + column_b));
        __syncthreads();  // the tiles are complete

#pragma unroll
        for (int step = 0; step < BK; ++step) {
#pragma unroll
            for (int y = 0; y < TM; ++y) {
#pragma unroll
                for (int x = 0; x < TN; ++x) r_c[y][x] += s_a[ty * TM + y][step] * s_b[step][tx * TN + x];
            }
        }
        __syncthreads();  // all threads have read them
    }

#pragma unroll
    for (int y = 0; y < TM; ++y) {
#pragma unroll
        for (int x = 0; x < TN; ++x) {
            float* out = c + (first_row + ty * TM + y) * n + first_column + tx * TN + x;
            *out = combine_fp32(r_c[y][x], out, alpha, beta);
        }
    }
}
