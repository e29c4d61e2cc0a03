// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 5 of docs/ladders/fp32.md: accesses of 16 bytes.
//
// The technique: one instruction moves four words between global memory and registers (gemm-practice,
// `f32x4`). A block's copies are a quarter as many instructions, with a quarter of the addresses and
// checks: 123 registers in place of 127. A lane now stores four words of a row of A, and two lanes in
// place of eight store to one bank. The price: n and k have to be multiples of four.
//
// Predicted: 1.03 times as fast as rung 4c, which is what gemm_staged gains by them.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread. n and k: multiples of four.

#include "epilogue/combine_fp32.cuh"
#include "simt/outer_product.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 2)
fp32_vectors(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
             int k, float alpha, float beta) {
    constexpr int threads = BM / TM * (BN / TN);
    alignas(16) __shared__ float tile_a[BK][BM], tile_b[BK][BN];  // A transposed
    const int thread = threadIdx.x;
    const int row = thread / (BN / TN) * TM, column = thread % (BN / TN) * TN;  // of its outputs
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    // The first vector of each tile that this thread copies; the next ones lie a fixed number of rows on.
    constexpr int rows_a = 4 * threads / BK, rows_b = 4 * threads / BN;
    const int row_a = 4 * thread / BK, column_a = 4 * thread % BK;
    const int row_b = 4 * thread / BN, column_b = 4 * thread % BN;
    const float* from_a = a + (first_row + row_a) * k + column_a;
    const float* from_b = b + Index(row_b) * n + first_column + column_b;

    float accumulator[TM][TN] = {};
    for (int first = 0; first < k; first += BK, from_a += BK, from_b += Index(BK) * n) {
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
            Vector<float, 4> words{};
            if (first_row + row_a + i < m && first + column_a < k) {
                words = load_vector<4>(from_a + Index(i) * k);
            }
#pragma unroll
            for (int w = 0; w < 4; ++w) tile_a[column_a + w][row_a + i] = words.value[w];
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) {
            Vector<float, 4> words{};
            if (first + row_b + i < k && first_column + column_b < n) {
                words = load_vector<4>(from_b + Index(i) * n);
            }
            store_vector(&tile_b[row_b + i][column_b], words);
        }
        __syncthreads();  // the tiles are complete

#pragma unroll
        for (int step = 0; step < BK; ++step) {
            Vector<float, 4> of_a[TM / 4], of_b[TN / 4];
#pragma unroll
            for (int y = 0; y < TM / 4; ++y) of_a[y] = load_vector<4>(&tile_a[step][row + 4 * y]);
#pragma unroll
            for (int x = 0; x < TN / 4; ++x) of_b[x] = load_vector<4>(&tile_b[step][column + 4 * x]);
            add_outer_product(accumulator, of_a, of_b);
        }
        __syncthreads();  // all threads have read them
    }

#pragma unroll
    for (int i = 0; i < TM * TN; i += 4) {
        const Index to_row = first_row + row + i / TN, to_column = first_column + column + i % TN;
        if (to_row >= m || to_column >= n) continue;
        store_combined_fp32<4>(c + to_row * n + to_column, &accumulator[i / TN][i % TN], alpha, beta);
    }
}
