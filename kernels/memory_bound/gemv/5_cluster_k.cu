// Tried, does not pay.
//
// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K: K is cut over the blocks of a cluster.
//
// Few rows of B make few warps: 4096 rows, two a warp, are 16 warps for each of 132 multiprocessors, and
// what they have under way is not enough. So Slices blocks take the same rows, each a slice of K and what of
// x belongs to it. Their sums meet in the cluster's shared memory: the first block reads the others' and
// adds them up, always in the same order. Nothing goes through global memory.
//
// A slice of x fits shared memory as a whole, so that the loop has no barrier.

#include "epilogue/cluster_sum.cuh"
#include "epilogue/combine.cuh"
#include "ptx/shared_memory.cuh"
#include "simt/block_sum.cuh"

// Adds the products of Loads vectors, 32 vectors apart: rows of B from memory, those of A from `x`.
template <int Loads, int Batch, int Rows, class T, int Width>
__device__ void add_products(float (&sum)[Batch][Rows], const T* const (&row)[Rows], int i,
                             const Vector<T, Width>* x, int pitch) {
    Vector<T, Width> of_b[Loads][Rows];
#pragma unroll
    for (int j = 0; j < Loads * Rows; ++j) {
        of_b[j / Rows][j % Rows] = load_vector<Width>(row[j % Rows] + Width * (i + j / Rows * 32));
    }
#pragma unroll
    for (int j = 0; j < Loads * Batch; ++j) {
        const Vector<T, Width> of_x = x[j % Batch * pitch + j / Batch * 32];
#pragma unroll
        for (int at = 0; at < Rows * Width; ++at) {
            const T left = of_b[j / Batch][at / Width].value[at % Width];
            sum[j % Batch][at / Width] += to_float(left) * to_float(of_x.value[at % Width]);
        }
    }
}

// Batch: rows of A. Rows: of B, of a warp. Slices: blocks of a cluster, along z. Its shared memory has a
// slice of x.
template <class T, int Batch, int Rows, int Block, int Loads, int Slices>
__global__ void __launch_bounds__(Block)
gemv_cluster_k(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
               float alpha, float beta) {
    constexpr int width = 16 / sizeof(T), outputs = Block / 32 * Rows;
    alignas(16) extern __shared__ unsigned char memory[];
    auto* x = reinterpret_cast<Vector<T, width>*>(memory);
    alignas(16) __shared__ float sums[Batch * outputs];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, vectors = k / width;
    const int first_of_a = blockIdx.y * Batch, first_of_b = blockIdx.x * outputs;

    const int slice = ceil_div(vectors, Slices);
    const int begin = blockIdx.z * slice, end = min(begin + slice, vectors);
    for (int i = threadIdx.x; i < Batch * slice; i += Block) {
        const int of_a = first_of_a + i / slice, at = begin + i % slice;
        if (of_a < m && at < end) x[i] = load_vector<width>(a + Index(of_a) * k + width * at);
    }
    __syncthreads();  // the slice of x is there

    const T* row[Rows];  // behind the last row the last one once more
#pragma unroll
    for (int r = 0; r < Rows; ++r) row[r] = b + Index(min(first_of_b + warp * Rows + r, n - 1)) * k;
    float own[Batch][Rows] = {};
    int i = begin + lane;
#pragma unroll 1
    for (; i + (Loads - 1) * 32 < end; i += Loads * 32) {
        add_products<Loads>(own, row, i, x + i - begin, slice);
    }
#pragma unroll 1
    for (; i < end; i += 32) add_products<1>(own, row, i, x + i - begin, slice);
#pragma unroll
    for (int j = 0; j < Batch * Rows; ++j) {
        const float sum = warp_sum(own[j / Rows][j % Rows]);
        if (lane == 0) sums[j / Rows * outputs + warp * Rows + j % Rows] = sum;
    }

    cluster_barrier();  // the sums of all blocks are written
    for (int at = 4 * threadIdx.x; blockIdx.z == 0 && at < Batch * outputs; at += 4 * Block) {
        Vector<float, 4> four = load_from_block(shared_address(sums + at), 0);
        for (int rank = 1; rank < Slices; ++rank) {
            const Vector<float, 4> more = load_from_block(shared_address(sums + at), rank);
#pragma unroll
            for (int w = 0; w < 4; ++w) four.value[w] += more.value[w];
        }
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const float sum[1] = {four.value[w]};
            const int of_a = first_of_a + at / outputs, of_b = first_of_b + at % outputs + w;
            if (of_a < m && of_b < n) store_combined(c + Index(of_a) * n + of_b, sum, alpha, beta);
        }
    }
    cluster_barrier();  // no block leaves while its sums are read
}
