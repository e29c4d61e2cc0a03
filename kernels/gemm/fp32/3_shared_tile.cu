// C = alpha * A @ B + beta * C in fp32, row-major.
// Rung 3 of docs/ladders/fp32.md: tiles in shared memory.
//
// The technique: a block copies a Tile x Tile part of A and of B into shared memory and multiplies from there
// (hip-gemm, kernel 2). Each word is loaded from global memory once per block, then used for Tile outputs. In
// rung 2 all warps of a block load the same words of B. Each FFMA still needs two loads; only where they come
// from has changed, so the gain is far below Tile, and these loads are what rung 4 saves. At the default Tile
// of 32 the lanes of a warp have one y and neighbouring x: they read one word of A (a broadcast) and 32
// neighbouring words of B, neither with a bank conflict.
//
// Tile: rows and columns of a block's tiles, in elements.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"

template <int Tile>
__global__ void __launch_bounds__(Tile * Tile)
fp32_shared_tile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m,
                 int n, int k, float alpha, float beta) {
    __shared__ float tile_a[Tile][Tile], tile_b[Tile][Tile];
    const int x = threadIdx.x % Tile, y = threadIdx.x / Tile;
    const Index row = Index(blockIdx.y) * Tile + y, column = Index(blockIdx.x) * Tile + x;

    float accumulator = 0.0f;
    for (int first = 0; first < k; first += Tile) {
        // Zeros stand for what is outside the matrices: they add nothing.
        tile_a[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f;
        tile_b[y][x] = first + y < k && column < n ? b[Index(first + y) * n + column] : 0.0f;
        __syncthreads();  // the tiles are complete

#pragma unroll
        for (int i = 0; i < Tile; ++i) accumulator += tile_a[y][i] * tile_b[i][x];
        __syncthreads();  // all threads have read them
    }

    if (row >= m || column >= n) return;
    float* out = c + row * n + column;
    *out = combine_fp32(accumulator, out, alpha, beta);
}
