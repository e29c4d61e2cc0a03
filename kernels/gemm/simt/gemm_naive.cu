// C = alpha * A @ B + beta * C in fp32, row-major: one thread per output, operands straight from global
// memory.
//
// The technique is the map from threads to outputs. A warp of consecutive columns reads one word of A (a
// broadcast) and 32 neighbouring words of B; a warp of consecutive rows reads 32 words a whole row apart and
// writes as badly.
//   flat       one flat index, cut into row and column (hip-gemm, kernel 1)
//   coalesced  2-D block, x walks the columns (gemm-practice)
//   strided    the same block, x walks the rows: the uncoalesced baseline (matmul-worklog, kernel 1)
//
// Block: threads per block.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"

enum class Mapping { flat, coalesced, strided };

struct Position {
    Index row, column;
};

template <Mapping Map, int Block>
__device__ inline Position position_of_thread(int n) {
    if constexpr (Map == Mapping::flat) {
        const Index index = Index(blockIdx.x) * Block + threadIdx.x;
        return {index / n, index % n};
    }
    const Index x = Index(blockIdx.x) * 32 + threadIdx.x;
    const Index y = Index(blockIdx.y) * (Block / 32) + threadIdx.y;
    return Map == Mapping::coalesced ? Position{y, x} : Position{x, y};
}

template <Mapping Map, int Block>
__global__ void __launch_bounds__(Block)
gemm_naive(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
           int m, int n, int k, float alpha, float beta) {
    const auto [row, column] = position_of_thread<Map, Block>(n);
    if (row >= m || column >= n) return;

    float accumulator = 0.0f;
    for (int i = 0; i < k; ++i) accumulator += a[row * k + i] * b[Index(i) * n + column];

    float* out = c + row * n + column;
    *out = combine_fp32(accumulator, out, alpha, beta);
}
