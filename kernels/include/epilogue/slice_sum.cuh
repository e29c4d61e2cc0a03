// The epilogue of split K over a cluster, through distributed shared memory (cuda-guide). All Slices blocks
// hold accumulators of the same tile of C, each of its own slice of K. The tile's columns are divided into
// one band per block. A block sends its accumulators of every other block's band to that block's shared
// memory, and adds what it receives to its accumulators of its own band, which it stores to C. In all blocks
// the same register of the same thread belongs to the same element of C. So a thread sends to the thread of
// its own number, and no data change their layout. Nothing goes through global memory, and the order of the
// additions is always the same.
#pragma once

#include "epilogue/warpgroup_store.cuh"
#include "ptx/cluster.cuh"
#include "types/vector.cuh"

struct SliceSteps {
    int first, count;
};

// Steps of K that a slice takes: every step belongs to one slice, and shares differ by one at most.
__host__ __device__ constexpr SliceSteps steps_of_slice(int steps, int slice, int slices) {
    const int first = slice * steps / slices;
    return {first, (slice + 1) * steps / slices - first};
}

// A block's buffers for this, which take the place of the ring. Value: the type of an element of C. The
// columns of each consumer are divided alike. Bands are a multiple of 16 columns wide, because one stmatrix
// of a warp stores 16. All are of one width, the least that is enough, but the last one may be narrower, and
// some may be empty after it. Of 16 columns and 64 rows a thread holds 8 accumulators.
template <class Value, class BlockTile, int Slices>
struct SliceSum {
    // Registers, a thread's accumulators in 64 rows, are half as many as columns: of all columns, of a band,
    // and of the narrower band, 0 if there is none.
    static constexpr int registers = BlockTile::consumer_columns / 2;
    static constexpr int band = ceil_div(registers, 8 * Slices) * 8, narrow_band = registers % band;
    static constexpr int threads = BlockTile::consumers * warpgroup_threads;
    static constexpr int senders = const_max(Slices - 1, 1);

    // What the other blocks have sent, by thread of the consumers: neighbouring threads access neighbouring
    // vectors, without bank conflicts.
    Vector<float, 4> received[senders][BlockTile::fragments][band / 4][threads];
    // Buffers from which TMA stores to C. The width of its box divides a full band and the narrower one.
    using Buffers = TmaStoreRing<Value, 2 * gcd(band, registers), 2>;
    Buffers results[BlockTile::consumers];

    // Where block `to` receives from block `sender`: the sender's rank, counted without `to`.
    __host__ __device__ static constexpr int place(int sender, int to) { return sender - (sender > to); }

    // Sends the accumulators of each other block's band to that block, and copies those of this block's band
    // to `own`. consumer_thread: the thread's number among those of all consumers. Barriers of the cluster
    // must come before (no block reads its ring any more) and after (every block has received).
    __device__ void send(const float (&accumulator)[BlockTile::fragments][registers],
                         float (&own)[BlockTile::fragments][band], int rank, int consumer_thread) {
        Vector<float, 4>* there[Slices];
#pragma unroll
        for (int to = 0; to < Slices; ++to) {
            there[to] = in_block(&received[place(rank, to)][0][0][consumer_thread], to);
        }
#pragma unroll
        for (int i = 0; i < BlockTile::fragments * band; i += 4) {
            const int fragment = i / band, within = i % band;
#pragma unroll
            for (int to = 0; to < Slices; ++to) {
                const int first = to * band + within;
                if (first >= registers) continue;
                const float* vector = &accumulator[fragment][first];
                if (to != rank) {
                    there[to][i / 4 * threads] = *reinterpret_cast<const Vector<float, 4>*>(vector);
                } else {
#pragma unroll
                    for (int w = 0; w < 4; ++w) own[fragment][within + w] = vector[w];
                }
            }
        }
    }

    // Adds what was received to `own`, and stores this block's band to C. (row, column): where the consumer's
    // part of the tile begins in C. Called by all threads of the consumer; `thread` is the number among them.
    __device__ void store(const float (&own)[BlockTile::fragments][band], const MatrixC<Value>& c,
                          const TensorMap& map, int row, int column, int rank, int consumer, int thread) {
        const int left = registers - rank * band;  // of this band and those after it
        if (left >= band) {
            store_band<band>(own, c, map, row, column + 2 * rank * band, consumer, thread);
        } else if constexpr (narrow_band > 0) {
            const int first = column + 2 * rank * band;
            if (left > 0) store_band<narrow_band>(own, c, map, row, first, consumer, thread);
        }
    }

private:
    template <int Count>
    __device__ void store_band(const float (&own)[BlockTile::fragments][band], const MatrixC<Value>& c,
                               const TensorMap& map, int row, int column, int consumer, int thread) {
        float sum[BlockTile::fragments][Count];
#pragma unroll
        for (int i = 0; i < BlockTile::fragments * Count; i += 4) {
            const int fragment = i / Count, within = i % Count;
#pragma unroll
            for (int w = 0; w < 4; ++w) sum[fragment][within + w] = own[fragment][within + w];
#pragma unroll
            for (int sender = 0; sender < Slices - 1; ++sender) {
                const Vector<float, 4> more =
                    received[sender][fragment][within / 4][consumer * warpgroup_threads + thread];
#pragma unroll
                for (int w = 0; w < 4; ++w) sum[fragment][within + w] += more.value[w];
            }
        }
        int next = 0;
        combine_accumulators(sum, c, row, column, thread);
        results[consumer].store(sum, map, row, column, thread, consumer + 1, next);
        if (thread == 0) wait_for_store_reads<0>();  // shared memory goes when the block exits
    }
};
