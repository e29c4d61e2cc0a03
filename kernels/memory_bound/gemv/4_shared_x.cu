// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K: x in shared memory, several rows of B a
// warp.
//
// The block keeps a part of x in shared memory, and each vector of it that a warp reads there serves Rows
// rows of B. What goes through the load units besides B is 1 / Rows of it, not as much again.
//
// Several rows of A now share one reading of B: each vector of B is multiplied by Batch vectors of x. Per
// multiprocessor and clock the memory brings 18 bytes and shared memory 128, so that Batch / Rows is 7 at
// most. With Batch = 16 there is a second limit: 16 multiply-adds for each element of B are 72 of 128 a clock
// in fp32, and 144 in bf16.

#include "epilogue/combine.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// The sum over a warp, in all lanes.
__device__ float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
}

// Adds the products of Loads vectors, 32 vectors apart: rows of B from memory, those of A from `x`.
template <int Loads, int Part, int Batch, int Rows, class T, int Width>
__device__ void add_products(float (&sum)[Batch][Rows], const T* const (&row)[Rows], int i,
                             const Vector<T, Width>* x) {
    Vector<T, Width> of_b[Loads][Rows];
#pragma unroll
    for (int j = 0; j < Loads * Rows; ++j) {
        of_b[j / Rows][j % Rows] = load_vector<Width>(row[j % Rows] + Width * (i + j / Rows * 32));
    }
#pragma unroll
    for (int j = 0; j < Loads * Batch; ++j) {
        const Vector<T, Width> of_x = x[j % Batch * Part + j / Batch * 32];
#pragma unroll
        for (int at = 0; at < Rows * Width; ++at) {
            const T left = of_b[j / Batch][at / Width].value[at % Width];
            sum[j % Batch][at / Width] += to_float(left) * to_float(of_x.value[at % Width]);
        }
    }
}

// Batch: rows of A. Rows: of B, of a warp. Part: vectors of each row of A in shared memory.
template <class T, int Batch, int Rows, int Block, int Loads, int Part>
__global__ void __launch_bounds__(Block)
gemv_shared_x(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
              float alpha, float beta) {
    constexpr int width = 16 / sizeof(T);  // elements of a vector
    __shared__ Vector<T, width> x[Batch * Part];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, vectors = k / width;
    const int first_of_a = blockIdx.y * Batch, first_of_b = (blockIdx.x * (Block / 32) + warp) * Rows;
    const T* row[Rows];  // behind the last row the last one once more
#pragma unroll
    for (int r = 0; r < Rows; ++r) row[r] = b + Index(min(first_of_b + r, n - 1)) * k;

    float own[Batch][Rows] = {};
    for (int begin = 0; begin < vectors; begin += Part) {
        const int end = min(begin + Part, vectors);
        __syncthreads();  // all have read the part before
        for (int i = threadIdx.x; i < Batch * Part; i += Block) {
            const int of_a = first_of_a + i / Part, at = begin + i % Part;
            if (of_a < m && at < end) x[i] = load_vector<width>(a + Index(of_a) * k + width * at);
        }
        __syncthreads();  // the part is there
        int i = begin + lane;
#pragma unroll 1
        for (; i + (Loads - 1) * 32 < end; i += Loads * 32) {
            add_products<Loads, Part>(own, row, i, x + i - begin);
        }
#pragma unroll 1
        for (; i < end; i += 32) add_products<1, Part>(own, row, i, x + i - begin);
    }

    float mine[(Batch * Rows + 31) / 32] = {};  // a lane stores every 32nd output
#pragma unroll
    for (int j = 0; j < Batch * Rows; ++j) {
        const float sum = warp_sum(own[j / Rows][j % Rows]);
        if (lane == j % 32) mine[j / 32] = sum;
    }
#pragma unroll
    for (int j = 0; j < Batch * Rows; j += 32) {
        const float sum[1] = {mine[j / 32]};
        const int of_a = first_of_a + (j + lane) / Rows, of_b = first_of_b + (j + lane) % Rows;
        if (j + lane >= Batch * Rows || of_a >= m || of_b >= n) continue;
        store_combined(c + Index(of_a) * n + of_b, sum, alpha, beta);
    }
}
