// The epilogue where K is cut into slices, one per block of a cluster: each block finishes a band of the
// columns of the tile that all of them hold accumulators of. A thread writes the registers of every other
// band to the shared memory of that band's block (split K through distributed shared memory, cuda-guide), for
// the thread of its own number, which holds the same places of the tile there. Nothing goes through global
// memory, nothing is transposed, and the order of the additions is always the same.
#pragma once

#include "copy/vector.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "schedule/cluster.cuh"

struct SliceSteps {
    int first, count;
};

// Steps of K that a slice takes: every step belongs to one slice, and shares differ by one at most.
__host__ __device__ constexpr SliceSteps steps_of_slice(int steps, int slice, int slices) {
    const int first = slice * steps / slices;
    return {first, (slice + 1) * steps / slices - first};
}

// The sum of Slices blocks, in shared memory that no block reads any more; Value: of C. A consumer's columns
// are cut into bands of a multiple of 16 columns, as stmatrix stores them. All bands are as wide as the first
// one; where that does not come out even, the last ones are narrower or empty.
template <class Value, class Tile, int Slices>
struct SliceSum {
    // Registers of a fragment: of all columns, of a band, and of one that is narrower, or 0.
    static constexpr int registers = Tile::consumer_columns / 2;
    static constexpr int band = ceil_div(registers, 8 * Slices) * 8, narrow_band = registers % band;
    static constexpr int threads = Tile::consumers * warpgroup_threads;
    static constexpr int senders = const_max(Slices - 1, 1);

    // What other blocks have sent. Neighbouring threads access neighbouring vectors, without bank conflicts.
    Vector<float, 4> received[senders][Tile::fragments][band / 4][threads];
    // Buffers on their way to C. Whole copies of TMA make up a band of either width.
    using Buffers = TmaStoreRing<Value, 2 * gcd(band, registers), 2>;
    Buffers results[Tile::consumers];

    // The number of block `sender` among those that send to block `to`.
    __host__ __device__ static constexpr int place(int sender, int to) { return sender - (sender > to); }

    // Sends the other blocks' bands, and copies this block's to `own`. `thread` counts through all consumers.
    // A barrier of the cluster comes before (no block reads this memory) and after (all have received).
    __device__ void send(const float (&accumulator)[Tile::fragments][registers],
                         float (&own)[Tile::fragments][band], int rank, int thread) {
        Vector<float, 4>* there[Slices];
#pragma unroll
        for (int to = 0; to < Slices; ++to) {
            there[to] = in_block(&received[place(rank, to)][0][0][thread], to);
        }
#pragma unroll
        for (int i = 0; i < Tile::fragments * band; i += 4) {
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

    // Adds up what was received, and stores this block's band to C, of a consumer's part that begins at
    // (row, column). Called by all threads of a consumer.
    __device__ void store(const float (&own)[Tile::fragments][band], const MatrixC<Value>& c, int row,
                          int column, int rank, int consumer, int thread) {
        const int left = registers - rank * band;  // in this band and those after it
        if (left >= band) {
            store_band<band>(own, c, row, column + 2 * rank * band, consumer, thread);
        } else if constexpr (narrow_band > 0) {
            if (left > 0) store_band<narrow_band>(own, c, row, column + 2 * rank * band, consumer, thread);
        }
    }

private:
    template <int Count>
    __device__ void store_band(const float (&own)[Tile::fragments][band], const MatrixC<Value>& c, int row,
                               int column, int consumer, int thread) {
        float sum[Tile::fragments][Count];
#pragma unroll
        for (int i = 0; i < Tile::fragments * Count; i += 4) {
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
        combine_accumulators(sum, c.c, c.m, c.n, row, column, c.alpha, c.beta, thread);
        results[consumer].template store<Evict::normal>(sum, c.map, row, column, thread, consumer + 1, next);
        if (thread == 0) wait_for_store_reads<0>();  // shared memory goes when the block exits
    }
};
