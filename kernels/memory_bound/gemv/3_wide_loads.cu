// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K: loads of 16 bytes, several under way.
//
// One instruction moves four words of fp32 or eight of bf16, and a lane asks for Loads vectors of its row,
// and as many of x, before it multiplies the first. The compiler moves the last of them behind the first
// products, to save registers: two to four in each of 48 warps are left, of the row 48 KiB or more.
//
// x comes from the L1, vector by vector as the row does: half of all loads are for it. K is a multiple of
// a vector, for else rows would not begin at multiples of 16 bytes.

#include "epilogue/combine.cuh"
#include "simt/block_sum.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// Adds the products of Loads vectors of a row and of x, 32 vectors apart, in fp32 whatever T is.
template <int Loads, class T>
__device__ void add_products(float& sum, const T* row, const T* x) {
    constexpr int width = 16 / sizeof(T);
    Vector<T, width> of_row[Loads], of_x[Loads];
#pragma unroll
    for (int load = 0; load < Loads; ++load) {
        of_row[load] = load_vector<width>(row + 32 * width * load);
        of_x[load] = load_vector<width>(x + 32 * width * load);
    }
#pragma unroll
    for (int i = 0; i < Loads * width; ++i) {
        sum += to_float(of_row[i / width].value[i % width]) * to_float(of_x[i / width].value[i % width]);
    }
}

template <class T, int Block, int Loads>
__global__ void __launch_bounds__(Block)
gemv_wide_loads(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
                float alpha, float beta) {
    constexpr int width = 16 / sizeof(T);  // elements of a vector
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, vectors = k / width;
    const Index row = blockIdx.y;
    const int column = blockIdx.x * (Block / 32) + warp;
    if (column >= n) return;
    const T *x = a + row * k, *weights = b + Index(column) * k;

    float own = 0.0f;
    int i = lane;
#pragma unroll 1
    for (; i + (Loads - 1) * 32 < vectors; i += Loads * 32) {
        add_products<Loads>(own, weights + width * i, x + width * i);
    }
#pragma unroll 1
    for (; i < vectors; i += 32) add_products<1>(own, weights + width * i, x + width * i);

    const float sum[1] = {warp_sum(own)};
    if (lane == 0) store_combined(c + row * n + column, sum, alpha, beta);
}
