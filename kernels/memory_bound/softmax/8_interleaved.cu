// output[r][c] = exp(input[r][c] - m) / S: the next row is added up while this one is written.
//
// In the file before, a warp writes its outputs of a row at a stretch. It then adds up the next one and meets
// the cluster, and has nothing for the memory to write meanwhile. Here it adds up a piece of the next row
// after each piece that it writes. So the memory has both to read and to write, but while the cluster meets.

#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "schedule/ring.cuh"
#include "simt/normalizer.cuh"
#include "types/index.cuh"

// Cluster blocks share a row. A warp has Stages places of Piece bytes, for all of its part of a row and more.
template <class T, int Cluster, int Block, int Stages, int Piece>
__global__ void __launch_bounds__(Block)
softmax_interleaved(const T* __restrict__ input, T* __restrict__ output, Index rows, Index columns) {
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

    RingPosition<Stages> at, ahead;  // of the pieces that are written next, and added up next
    const auto add_piece = [&](Normalizer& sum, int piece) {
        mbarrier_wait(full[ahead.stage], ahead.parity);
#pragma unroll
        for (int i = lane; i < room; i += 32) {
            if (piece + i < vectors) sum.add(ring[ahead.stage][i]);
        }
        ahead.advance();
    };
    Normalizer next = Normalizer::of_none();
    for (int piece = first_piece; piece < vectors; piece += step) add_piece(next, piece);
    int turn = 0;
    for (Index row = first_row; row < rows; row += every) {
        next = over_warp(next);
        if (lane == 0) of_warp[turn][warp] = next;
        cluster_barrier();  // those of all warps of all blocks are written
        Normalizer whole = Normalizer::of_none();
        for (int i = lane; i < Cluster * warps; i += 32) {
            whole.add(*in_block(&of_warp[turn][i % warps], i / warps));
        }
        whole = over_warp(whole);
        turn ^= 1;

        const float scale = 1.0f / whole.sum;
        next = Normalizer::of_none();
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
            if (row + every < rows) add_piece(next, piece);
        }
    }
    cluster_barrier();  // what is in this block has been read: it may leave
}
