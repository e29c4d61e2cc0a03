// Sum of the partial products that the blocks of a cluster hold of one tile of C (split K, sm_90): each block lays its sums
// down in its own shared memory, then finishes its share of the rows, reading them from all blocks in the order of their
// rank. Nothing goes through global memory, and the order of the additions never changes.
#pragma once

#include "cluster.cuh"
#include "epilogue.cuh"
#include "index.cuh"
#include "words.cuh"

// The word at `address` of this block's shared memory, in that of the block with this rank: four neighbours of it.
__device__ inline Words<4> load_from_block(unsigned address, int rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    Words<4> words;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(words.word[0]), "=f"(words.word[1]), "=f"(words.word[2]), "=f"(words.word[3])
                 : "r"(there)
                 : "memory");
    return words;
}

// The tile of Rows x Columns sums at `tile`, summed over `blocks` blocks, into C from (first_row, first_column) on.
// Width: 4 where rows of C allow 128-bit accesses, else 1. Called by all threads of all blocks.
template <int Rows, int Columns, int Threads, int Width>
__device__ inline void store_sum_of_cluster(float* c, int m, int n, Index first_row, int first_column, unsigned tile,
                                            int blocks, float alpha, float beta) {
    constexpr int groups = Columns / 4;
    cluster_barrier();  // all sums lie in shared memory
    const int share = ceil_div(Rows, blocks);
    const int begin = cluster_rank() * share, end = lesser(begin + share, Rows);
    for (int i = begin * groups + threadIdx.x; i < end * groups; i += Threads) {
        const Index row = first_row + i / groups;
        const Index column = Index(first_column) + i % groups * 4;
        if (row >= m || column >= n) continue;
        Words<4> sum = load_from_block(tile + 16 * i, 0);
        for (int rank = 1; rank < blocks; ++rank) {
            const Words<4> more = load_from_block(tile + 16 * i, rank);
#pragma unroll
            for (int w = 0; w < 4; ++w) sum.word[w] += more.word[w];
        }
#pragma unroll
        for (int w = 0; w < 4; w += Width) {
            if (column + w < n) store_outputs<Width>(c + row * n + column + w, sum.word + w, alpha, beta);
        }
    }
    cluster_barrier();  // nobody reads this block's sums any more
}
