// C = alpha * A @ B + beta * C in fp32, row-major, as gemm-practice writes it: `t_8x8_sliced_k_f32x4_bcf`.
//
// The technique: A transposed in shared memory, so that a thread's values of A for one step of K lie side by
// side: one LDS.128 reads four. A thread's 8 x 8 outputs are four squares of 4 x 4, one in each quarter of
// the tile. Padding longer rows keeps the transposed store off one bank.
//
// The text has no alpha and beta; this kernel adds them. It has no bounds: m and n are multiples of 128, k of
// 8.
//
// Offset: words added to each row of both tiles.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;

template <int Offset>
__global__ void __launch_bounds__(256)
practice_transposed_a(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                      int n, int k, float alpha, float beta) {
    alignas(16) __shared__ float s_a[BK][BM + Offset], s_b[BK][BN + Offset];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int row_a = threadIdx.x / 2, column_a = threadIdx.x % 2 * 4;
    const int row_b = threadIdx.x / 32, column_b = threadIdx.x % 32 * 4;
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    float r_c[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
        const auto of_a = load_vector<4>(a + (first_row + row_a) * k + first + column_a);
        const auto of_b = load_vector<4>(b + Index(first + row_b) * n + first_column + column_b);
#pragma unroll
        for (int w = 0; w < 4; ++w) s_a[column_a + w][row_a] = of_a.value[w];
        store_vector(&s_b[row_b][column_b], of_b);
        __syncthreads();  // the tiles are complete

#pragma unroll
        for (int step = 0; step < BK; ++step) {
            Vector<float, 4> r_a[2], r_b[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                r_a[half] = load_vector<4>(&s_a[step][ty * 4 + half * BM / 2]);
                r_b[half] = load_vector<4>(&s_b[step][tx * 4 + half * BN / 2]);
            }
#pragma unroll
            for (int i = 0; i < TM * TN; ++i) {
                const int y = i / TN, x = i % TN;
                r_c[y][x] += r_a[y / 4].value[y % 4] * r_b[x / 4].value[x % 4];
            }
        }
        __syncthreads();  // all threads have read them
    }

#pragma unroll
    for (int i = 0; i < TM * TN; i += 4) {
        const int y = i / TN, x = i % TN;
        const Index row = first_row + y / 4 * BM / 2 + ty * 4 + y % 4;
        store_combined_fp32<4>(c + row * n + first_column + x / 4 * BN / 2 + tx * 4, &r_c[y][x], alpha, beta);
    }
}
