// output[r][c] = exp(input[r][c] - m) / S: the next row is read while this one is written.
//
// In the file before, a row of 1 MiB leaves no room for another one, so that its multiprocessors first read,
// then compute, then write. Here clusters stay, and go from row to row. Each warp has a ring of places for
// pieces of its rows, and asks for them in the order in which it needs them, from one row on into the next.
// As soon as it has made the outputs of a piece, the next piece of the ring is under way to that place.
//
// For each row the cluster meets once: before that each warp leaves maximum and sum of its pieces, and after
// it every warp reads those of all others. They lie in two places by turns, because a warp that is ahead
// leaves those of the next row while others still read these.

#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "schedule/ring.cuh"
#include "simt/normalizer.cuh"
#include "types/index.cuh"

// Cluster blocks share a row. A warp has Stages places of Piece bytes, for all of its part of a row and more.
template <class T, int Cluster, int Block, int Stages, int Piece>
__global__ void __launch_bounds__(Block)
softmax_ring(const T* __restrict__ input, T* __restrict__ output, Index rows, Index columns) {
    constexpr int width = 16 / sizeof(T), room = Piece / 16, warps = Block / 32;  // room: vectors of a piece
    using Line = Vector<T, width>;
    alignas(128) extern __shared__ unsigned char memory[];
    __shared__ Mbarrier barriers[warps][Stages];
    __shared__ Normalizer of_warp[2][warps];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto* ring = reinterpret_cast<Line(*)[room]>(memory) + warp * Stages;
    auto& full = barriers[warp];
    const Index first_row = blockIdx.x / Cluster, every = gridDim.x / Cluster;  // rows from one to the next
    const int most = ceil_div(columns / width, Cluster), begin = cluster_rank() * most;  // in vectors
    const int vectors = min(most, static_cast<int>(columns / width) - begin);
    // Warps take pieces of the block's share by turns.
    const int first_piece = warp * room, step = warps * room;

    Index asked_row = first_piece < vectors ? first_row : rows;
    int asked = first_piece;
    const auto ask = [&](int stage) {  // for the piece that comes next
        if (asked_row >= rows) return;
        if (lane == 0) {
            const int bytes = 16 * min(room, vectors - asked);
            mbarrier_arrive_expect(full[stage], bytes);
            bulk_load(ring[stage], input + asked_row * columns + width * (begin + asked), bytes, full[stage]);
        }
        asked += step;
        if (asked < vectors) return;
        asked = first_piece;
        asked_row += every;
    };
    if (lane == 0) {
        for (int stage = 0; stage < Stages; ++stage) mbarrier_init(full[stage], 1);
        fence_mbarrier_init();
    }
    __syncwarp();  // the barriers are there
#pragma unroll 1
    for (int stage = 0; stage < Stages; ++stage) ask(stage);

    RingPosition<Stages> at;
    int turn = 0;
    for (Index row = first_row; row < rows; row += every) {
        Normalizer whole = Normalizer::of_none();
        RingPosition<Stages> ahead = at;
        for (int piece = first_piece; piece < vectors; piece += step) {
            mbarrier_wait(full[ahead.stage], ahead.parity);
#pragma unroll
            for (int i = lane; i < room; i += 32) {
                if (piece + i < vectors) whole.add(ring[ahead.stage][i]);
            }
            ahead.advance();
        }
        whole = over_warp(whole);
        if (lane == 0) of_warp[turn][warp] = whole;
        cluster_barrier();  // those of all warps of all blocks are written
        whole = Normalizer::of_none();
        for (int i = lane; i < Cluster * warps; i += 32) {
            whole.add(*in_block(&of_warp[turn][i % warps], i / warps));
        }
        whole = over_warp(whole);
        turn ^= 1;

        const float scale = 1.0f / whole.sum;
        auto* to = reinterpret_cast<Line*>(output + row * columns) + begin;
        for (int piece = first_piece; piece < vectors; piece += step) {
#pragma unroll
            for (int i = lane; i < room; i += 32) {
                if (piece + i >= vectors) continue;
                const Line given = ring[at.stage][i];
                Line made;
#pragma unroll
                for (int j = 0; j < width; ++j) {
                    const float power = exp_to_zero(to_float(given.value[j]) - whole.maximum);
                    made.value[j] = from_float<T>(power * scale);
                }
                to[piece + i] = made;
            }
            __syncwarp();  // all lanes have read it
            ask(at.stage);
            at.advance();
        }
    }
    cluster_barrier();  // what is in this block has been read: it may leave
}
