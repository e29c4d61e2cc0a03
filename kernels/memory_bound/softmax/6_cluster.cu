// Tried, does not pay in bf16 with 65536 columns.
//
// output[r][c] = exp(input[r][c] - m) / S: a row over the blocks of a cluster, each with its share in shared
// memory.
//
// A row of 262144 fp32 numbers is 1 MiB, which no multiprocessor holds. Cluster blocks on neighbouring
// multiprocessors hold it together, and it is still read once. Each works out the maximum and the sum of its
// share. It then reads those of the others from their shared memory: eight bytes a block, and no trip through
// global memory. Shorter rows leave room for several blocks on a multiprocessor, so that some copy while
// others compute.

#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "simt/normalizer.cuh"
#include "types/index.cuh"

template <class T, int Cluster, int Pieces>
__global__ void __launch_bounds__(1024)
softmax_cluster(const T* __restrict__ input, T* __restrict__ output, Index columns) {
    constexpr int width = 16 / sizeof(T);  // elements of a vector
    alignas(128) extern __shared__ unsigned char memory[];
    __shared__ Mbarrier full[Pieces];
    __shared__ Normalizer of_share;
    auto* share = reinterpret_cast<Vector<T, width>*>(memory);
    const int thread = threadIdx.x, threads = blockDim.x, lane = thread % 32;
    const int most = ceil_div(columns / width, Cluster), begin = cluster_rank() * most;  // in vectors
    const int vectors = min(most, static_cast<int>(columns / width) - begin), piece = ceil_div(most, Pieces);
    const Index first_column = blockIdx.x / Cluster * columns + width * begin;
    const T* from = input + first_column;
    T* to = output + first_column;

    if (thread == 0) {
        for (int p = 0; p < Pieces; ++p) mbarrier_init(full[p], 1);
        fence_mbarrier_init();
        for (int p = 0; p * piece < vectors; ++p) {
            const int first = p * piece, bytes = 16 * min(piece, vectors - first);
            mbarrier_arrive_expect(full[p], bytes);
            bulk_load(share + first, from + width * first, bytes, full[p]);
        }
    }
    __syncthreads();  // the barriers are there

    Normalizer whole = Normalizer::of_none();
    for (int p = 0; p * piece < vectors; ++p) {
        mbarrier_wait(full[p], 0);
        const int end = min((p + 1) * piece, vectors);
        for (int i = p * piece + thread; i < end; i += threads) whole.add(share[i]);
    }
    whole = over_block(whole);
    if (thread == 0) of_share = whole;
    cluster_barrier();  // those of all blocks are written
    whole = over_warp(lane < Cluster ? *in_block(&of_share, lane) : Normalizer::of_none());
    cluster_barrier();  // they have been read: blocks may leave

    const float scale = 1.0f / whole.sum;
    for (int i = thread; i < vectors; i += threads) {
        Vector<T, width> made = share[i];
#pragma unroll
        for (int j = 0; j < width; ++j) {
            made.value[j] = from_float<T>(exp_to_zero(to_float(made.value[j]) - whole.maximum) * scale);
        }
        store_vector<width>(to + width * i, made);
    }
}
