// Sum of the partial sums that the blocks of a cluster hold of one tile of C (split K, sm_90). Each block
// writes its partial sums to its own shared memory. Then it adds up its share of the rows, reading all blocks
// in the order of their rank. Nothing goes through global memory, and the order of the additions is always
// the same.
#pragma once

#include "epilogue/combine_fp32.cuh"
#include "ptx/cluster.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// A vector of four words from the shared memory of block `rank`, where `address` would be in this block's.
__device__ inline Vector<float, 4> load_from_block(unsigned address, int rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    Vector<float, 4> words;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(words.value[0]), "=f"(words.value[1]), "=f"(words.value[2]), "=f"(words.value[3])
                 : "r"(there)
                 : "memory");
    return words;
}

// Adds up this block's share of the rows of a tile of Rows x Columns over the blocks of the cluster, and
// calls act(row, column, sums) for each vector of four. The tile lies at `tile` in all blocks, in rows of
// Stride words. Called by Threads threads. A barrier of the cluster comes before (the partial sums lie in
// shared memory) and after (all blocks have read them).
template <int Rows, int Columns, int Stride, int Threads, class Act>
__device__ inline void for_each_sum_of_cluster(unsigned tile, int blocks, int thread, Act act) {
    constexpr int groups = Columns / 4;
    const int share = ceil_div(Rows, blocks);
    const int begin = cluster_rank() * share, end = const_min(begin + share, Rows);
    for (int i = begin * groups + thread; i < end * groups; i += Threads) {
        const int row = i / groups, column = i % groups * 4;
        const unsigned address = tile + 4 * (row * Stride + column);
        Vector<float, 4> sum = load_from_block(address, 0);
        for (int rank = 1; rank < blocks; ++rank) {
            const Vector<float, 4> more = load_from_block(address, rank);
#pragma unroll
            for (int w = 0; w < 4; ++w) sum.value[w] += more.value[w];
        }
        act(row, column, sum.value);
    }
}

// The tile of Rows x Columns sums at `tile`, summed over `blocks` blocks, into C from (first_row,
// first_column) on. Width: 4 where rows of C allow 128-bit accesses, else 1. Called by all threads of all
// blocks.
template <int Rows, int Columns, int Threads, int Width>
__device__ inline void store_sum_of_cluster(float* c, int m, int n, Index first_row, int first_column,
                                            unsigned tile, int blocks, float alpha, float beta) {
#if __CUDA_ARCH__ >= 900
    cluster_barrier();
    for_each_sum_of_cluster<Rows, Columns, Columns, Threads>(
        tile, blocks, threadIdx.x, [&](int tile_row, int tile_column, const float (&sum)[4]) {
            const Index row = first_row + tile_row, column = Index(first_column) + tile_column;
            if (row >= m) return;
#pragma unroll
            for (int w = 0; w < 4; w += Width) {
                if (column + w < n) {
                    store_combined_fp32<Width>(c + row * n + column + w, sum + w, alpha, beta);
                }
            }
        });
    cluster_barrier();
#else
    __trap();  // never launched: the plan calls clusters unsupported there
#endif
}
