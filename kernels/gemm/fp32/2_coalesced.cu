// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 2 of docs/ladders/fp32.md: coalesced accesses.
//
// The technique: neighbouring threads compute neighbouring outputs of one row (matmul-worklog, kernel 2). A
// warp reads one word of A, which is broadcast, and 32 neighbouring words of B, and stores 32 neighbouring
// words of C: four whole sectors each. Against rung 1 two lines change, which say what a thread computes, and
// in the yaml the shape of the block and the order of the grid.
//
// Rows, Columns: of the outputs of a block, by default 8 x 32.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"

template <int Rows, int Columns>
__global__ void __launch_bounds__(Rows * Columns)
fp32_coalesced(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n,
               int k, float alpha, float beta) {
    const Index row = Index(blockIdx.y) * Rows + threadIdx.x / Columns;
    const Index column = Index(blockIdx.x) * Columns + threadIdx.x % Columns;
    if (row >= m || column >= n) return;

    float accumulator = 0.0f;
    for (int i = 0; i < k; ++i) accumulator += a[row * k + i] * b[Index(i) * n + column];

    float* out = c + row * n + column;
    *out = combine_fp32(accumulator, out, alpha, beta);
}
