// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 1 of docs/ladders/fp32.md: one thread per output.
//
// The starting point (matmul-worklog, kernel 1). Neighbouring threads compute outputs below one another, in a
// column of C. So a warp reads 32 words of A that lie a whole row apart, and stores 32 words of C that do.
// Each of these accesses touches 32 sectors, where a coalesced one touches four: the load/store unit handles
// these sectors one after another, its queue fills, and warps stall. All lanes read the same word of B.
//
// Rows, Columns: of the outputs of a block, by default 32 x 8.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"

template <int Rows, int Columns>
__global__ void __launch_bounds__(Rows * Columns)
fp32_naive(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
           int k, float alpha, float beta) {
    const Index row = Index(blockIdx.x) * Rows + threadIdx.x % Rows;
    const Index column = Index(blockIdx.y) * Columns + threadIdx.x / Rows;
    if (row >= m || column >= n) return;

    float accumulator = 0.0f;
    for (int i = 0; i < k; ++i) accumulator += a[row * k + i] * b[Index(i) * n + column];

    float* out = c + row * n + column;
    *out = combine_fp32(accumulator, out, alpha, beta);
}
