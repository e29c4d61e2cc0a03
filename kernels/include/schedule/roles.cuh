// The start of a block's roles: its first warpgroup is the producer, which copies operands into the ring, and
// the others are the consumers, which multiply them.
//
// Where Ring::early (parameters.cuh), the producer goes on as soon as it has set up the ring, and only the
// consumers wait for that; meanwhile one of them has C's map fetched, so that the first store need not wait
// for it. Not for clusters: a block must not signal another block's barriers before that block has
// initialised them.
// The consumers wait at barrier 0, that of __syncthreads, which nobody calls later; their own follow it.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
#include "schedule/ring.cuh"

// Called by all threads of the block, which then call one of the two below: with Ring::early those wait for
// the ring. Each stage of it has `releases` by those who read it.
template <class Ring, class Cluster, int Stages>
__device__ inline void set_up_ring(RingBarriers<Stages>& ring, int releases, const TensorMap& map_a,
                                   const TensorMap& map_b, const TensorMap& map_c) {
    static_assert(!Ring::early || Cluster::size == 1, "an early start needs a block without a cluster");
    if (Ring::early && threadIdx.x == warpgroup_threads) prefetch(map_c);
    if (threadIdx.x == 0) {
        prefetch(map_a);
        prefetch(map_b);
        ring.init(releases);
    }
    if constexpr (!Ring::early) block_or_cluster_barrier<(Cluster::size > 1)>();
}

// Called by all warps of the producer.
template <class BlockTile, class Ring>
__device__ inline void become_producer() {
    if constexpr (Ring::early) {
        __syncwarp();
        warpgroup_arrive<BlockTile::consumers + 1>(0);
    }
    BlockTile::shrink_producer();
}

// Called by all warps of the consumers.
template <class BlockTile, class Ring>
__device__ inline void become_consumer() {
    if constexpr (Ring::early) warpgroup_barrier<BlockTile::consumers + 1>(0);
    BlockTile::grow_consumer();
}
