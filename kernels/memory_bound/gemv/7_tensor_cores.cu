// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K, of 16 bits: on tensor cores.
//
// With 16 rows of A each element of B takes 16 multiply-adds: more than CUDA cores do while the memory brings
// the next ones. mma.m16n8k16 does 2048 at once. Rows of B take the place of its 16 rows, rows of A that of
// its 8 columns, so that with 8 rows of A or 16 nothing is wasted.
//
// The order in which an instruction adds up the depth is free, if both operands agree on it. So a lane loads
// 16 bytes of a row, as in file 3, and takes them for what two instructions want of it: words 0 and 1, then 2
// and 3. Operands go from memory to the tensor cores without shared memory and without ldmatrix. The warps of
// a block take turns along K, and their sums meet in shared memory.

#include "epilogue/combine.cuh"
#include "ptx/mma.cuh"
#include "types/index.cuh"

// Sixteen bytes of a row of 16-bit elements, or zeros where there is none.
__device__ uint4 load_if(bool inside, const void* from) {
    return inside ? *static_cast<const uint4*>(from) : uint4{};
}

// Batch: rows of A, 8 or 16. Rows: of B, of a block, in sixteens. Warps: of a block.
template <class T, int Batch, int Rows, int Warps>
__global__ void __launch_bounds__(32 * Warps)
gemv_tensor_cores(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
                  float alpha, float beta) {
    constexpr int down = Rows / 16, across = Batch / 8, depth = 32;  // of K, in two instructions
    __shared__ float sums[Warps][Batch][Rows + 4];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_of_a = blockIdx.y * Batch, first_of_b = blockIdx.x * Rows;

    AccumulatorFragment<float> own[down][across];
#pragma unroll 2
    for (int first = depth * warp; first < k; first += depth * Warps) {
        const int at = first + 8 * (lane % 4);
        uint4 of_b[down][2], of_a[across];
#pragma unroll
        for (int i = 0; i < 2 * down; ++i) {
            const int row = first_of_b + 8 * i + lane / 4;
            of_b[i / 2][i % 2] = load_if(row < n && at < k, b + Index(row) * k + at);
        }
#pragma unroll
        for (int j = 0; j < across; ++j) {
            const int row = first_of_a + 8 * j + lane / 4;
            of_a[j] = load_if(row < m && at < k, a + Index(row) * k + at);
        }
#pragma unroll
        for (int i = 0; i < down * across; ++i) {
            const uint4 upper = of_b[i / across][0], lower = of_b[i / across][1], x = of_a[i % across];
            auto& sum = own[i / across][i % across];
            Mma<T, float>::mma(sum, {upper.x, lower.x, upper.y, lower.y}, x.x, x.y);
            Mma<T, float>::mma(sum, {upper.z, lower.z, upper.w, lower.w}, x.z, x.w);
        }
    }

#pragma unroll
    for (int i = 0; i < down * across * 4; ++i) {
        const int of_a = i / 4 % across * 8 + lane % 4 * 2 + i % 2;
        const int of_b = i / 4 / across * 16 + lane / 4 + i / 2 % 2 * 8;
        sums[warp][of_a][of_b] = own[i / 4 / across][i / 4 % across].value(i % 4);
    }
    __syncthreads();  // the sums of all warps are written
    for (int i = threadIdx.x; i < Batch * Rows; i += 32 * Warps) {
        float sum[1] = {};
#pragma unroll
        for (int of = 0; of < Warps; ++of) sum[0] += sums[of][i / Rows][i % Rows];
        const int row = first_of_a + i / Rows, column = first_of_b + i % Rows;
        if (row < m && column < n) store_combined(c + Index(row) * n + column, sum, alpha, beta);
    }
}
