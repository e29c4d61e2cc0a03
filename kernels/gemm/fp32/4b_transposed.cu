// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 4b of docs/ladders/fp32.md: A transposed.
//
// The technique: A's tile is stored transposed (hip-gemm, kernel 3.3), so that a thread's words of A for
// one step of K lie side by side, as those of B do. Two LDS.128 read them just when they are needed, and
// nothing is kept for later steps: 127 registers in place of 164. So two blocks fit on a multiprocessor,
// and one computes while the other waits (rung 4c). The price: stores of A. Eight lanes store a row of
// eight words of A, down a column of the tile now, all to one bank.
//
// Launch bounds ask for one block, and so the compiler may take 255 registers. It takes 127, without the
// bound 131, and 128 with 8 bytes spilled if it has to leave room for two.
//
// Predicted: with one block (rung 4b) 0.90 to 1.10 times as fast as rung 4, since the stores conflict eight
// by eight. With two (rung 4c) 1.3 to 1.5 times as fast as with one.
//
// BM, BN, BK: tile of the block, in elements. TM, TN: outputs of a thread.

#include "epilogue/combine_fp32.cuh"
#include "simt/outer_product.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 1)
fp32_transposed(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
                int k, float alpha, float beta) {
    constexpr int threads = BM / TM * (BN / TN);
    alignas(16) __shared__ float tile_a[BK][BM], tile_b[BK][BN];  // A transposed
    const int thread = threadIdx.x;
    const int row = thread / (BN / TN) * TM, column = thread % (BN / TN) * TN;  // of its outputs
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;

    // The first word of each tile that this thread copies; the next ones lie a fixed number of rows on.
    constexpr int rows_a = threads / BK, rows_b = threads / BN;
    const int row_a = thread / BK, column_a = thread % BK, row_b = thread / BN, column_b = thread % BN;
    const float* from_a = a + (first_row + row_a) * k + column_a;
    const float* from_b = b + Index(row_b) * n + first_column + column_b;

    float accumulator[TM][TN] = {};
    for (int first = 0; first < k; first += BK, from_a += BK, from_b += Index(BK) * n) {
#pragma unroll
        for (int i = 0; i < BM; i += rows_a) {
            const bool inside = first_row + row_a + i < m && first + column_a < k;
            tile_a[column_a][row_a + i] = inside ? from_a[Index(i) * k] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < BK; i += rows_b) {
            const bool inside = first + row_b + i < k && first_column + column_b < n;
            tile_b[row_b + i][column_b] = inside ? from_b[Index(i) * n] : 0.0f;
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
    for (int i = 0; i < TM * TN; ++i) {
        const Index to_row = first_row + row + i / TN, to_column = first_column + column + i % TN;
        if (to_row >= m || to_column >= n) continue;
        float* out = c + to_row * n + to_column;
        *out = combine_fp32(accumulator[i / TN][i % TN], out, alpha, beta);
    }
}
