// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K: a thread a row of B.
//
// With one row of A this is a matrix times a vector, y = W x: each word of W is used once, so the memory's
// rate is all there is to reach. Here a thread adds up the products of its row, the way one would write it
// down. At each step the lanes of a warp read words that lie K apart, each in a sector of its own of 32
// bytes. The L1 keeps the sectors until the next steps have used the rest of them. But there are only as
// many threads as rows, each with few loads under way: most of the memory's time passes in waiting.
//
// More rows of A are as many vectors, one after the other: B is read again for each.

#include "epilogue/combine.cuh"
#include "types/index.cuh"

template <class T, int Block>
__global__ void __launch_bounds__(Block)
gemv_thread_per_row(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
                    float alpha, float beta) {
    const Index row = blockIdx.y;
    const int column = blockIdx.x * Block + threadIdx.x;  // of C, a row of B as it is stored
    if (column >= n) return;
    const T *x = a + row * k, *weights = b + Index(column) * k;

    float sum[1] = {};
    for (int i = 0; i < k; ++i) sum[0] += to_float(weights[i]) * to_float(x[i]);
    store_combined(c + row * n + column, sum, alpha, beta);
}
