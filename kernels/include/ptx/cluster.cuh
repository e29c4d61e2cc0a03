// Clusters of blocks (sm_90; cuda-guide): blocks that run at the same time on neighbouring multiprocessors
// and access each other's shared memory. A block must not exit while others access its memory, hence a
// barrier before the end.
#pragma once

__device__ inline int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks of the cluster; what they wrote before it is visible after it.
__device__ inline void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// What lies in block `rank` of the cluster where `here` lies in this block's shared memory (PTX ISA, mapa).
template <class Object>
__device__ inline Object* in_block(Object* here, int rank) {
    Object* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(rank));
    return there;
}

// All threads of the block where it is alone, or of its cluster.
template <bool InCluster>
__device__ inline void block_or_cluster_barrier() {
    if constexpr (InCluster) {
        cluster_barrier();
    } else {
        __syncthreads();
    }
}

// Where a block stands in a cluster of Rows x Columns tiles of C, by rank in row-major order. Blocks of a row
// share a tile of A, blocks of a column a tile of B.
template <int Rows, int Columns>
struct ClusterShape {
    static constexpr int rows = Rows, columns = Columns, size = Rows * Columns;

    __host__ __device__ static constexpr int row(int rank) { return rank / Columns; }
    __host__ __device__ static constexpr int column(int rank) { return rank % Columns; }

    // Bit r is set where block r stands in the same row (column).
    __host__ __device__ static constexpr unsigned row_mask(int rank) {
        return ((1u << Columns) - 1) << row(rank) * Columns;
    }
    __host__ __device__ static constexpr unsigned column_mask(int rank) {
        unsigned mask = 0;
        for (int r = 0; r < Rows; ++r) mask |= 1u << (r * Columns + column(rank));
        return mask;
    }

    // Blocks that share an operand with a block, itself included.
    static constexpr int partners = Rows + Columns - 1;
    __host__ __device__ static constexpr bool are_partners(int rank, int other) {
        return row(rank) == row(other) || column(rank) == column(other);
    }
};
