// Tried, does not pay with 65536 columns.
//
// output[r][c] = exp(input[r][c] - m) / S: one exponential an element, which stays in a register.
//
// The file before computes an exponential for the sum and again for the output, and a piece lies in the ring
// from the one to the other. Here a thread takes all of its numbers of a row into registers, and the next
// pieces are under way to their places at once: while the cluster meets, and while outputs are written.
// Exponentials take the place of the numbers, by the warp's own maximum. When maximum and sum of the row are
// known, one factor makes outputs of them: exp(own maximum - m) / S.
//
// The price is registers: 512 threads of a multiprocessor have room for 64 numbers each, which is less than
// its shared memory holds. So more blocks share a row, and two of a multiprocessor work on different rows.

#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "schedule/ring.cuh"
#include "simt/normalizer.cuh"
#include "types/index.cuh"

// Combines one number of each lane. All lanes get the result.
template <class Combine>
__device__ float over_lanes(float value, Combine combine) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, apart));
    }
    return value;
}

// Cluster blocks share a row. A thread holds Items numbers of it, a warp has Stages places of Piece bytes.
template <class T, int Cluster, int Block, int Items, int Stages, int Piece>
__global__ void __launch_bounds__(Block, const_max(1, 32768 / (Items * Block)))
softmax_one_exponential(const T* __restrict__ input, T* __restrict__ output, Index rows, Index columns) {
    constexpr int width = 16 / sizeof(T), room = Piece / 16, warps = Block / 32;  // room: vectors of a piece
    constexpr int held_vectors = Items / width, lines = room / 32;  // of a lane: in a row, and in a piece
    constexpr int each = ceil_div(Cluster * warps, 32);  // warps of the cluster that a lane reads from
    constexpr unsigned nothing = sizeof(T) == 4 ? 0xff800000 : 0xff80ff80;  // -inf, whose exponential is 0
    using Line = Vector<T, width>;
    using Words = Vector<unsigned, 4>;  // a line's: filled as a whole, and not number by number
    alignas(128) extern __shared__ unsigned char memory[];
    __shared__ Mbarrier barriers[warps][Stages];
    __shared__ Normalizer of_warp[2][warps];
    const auto larger = [](float a, float b) { return fmaxf(a, b); };
    const auto both = [](float a, float b) { return a + b; };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto* ring = reinterpret_cast<Words(*)[room]>(memory) + warp * Stages;
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
        float held[held_vectors][width];
        float maximum = Normalizer::of_none().maximum, sum = 0.0f;
#pragma unroll
        for (int v = 0; v < held_vectors; ++v) {
            const int piece = first_piece + v / lines * step, i = lane + 32 * (v % lines);
            if (v % lines == 0 && piece < vectors) mbarrier_wait(full[at.stage], at.parity);
            Words words{nothing, nothing, nothing, nothing};  // behind the end of the share
            if (piece + i < vectors) words = ring[at.stage][i];
            const Line given = reinterpret_cast<Line&>(words);
#pragma unroll
            for (int j = 0; j < width; ++j) {
                held[v][j] = to_float(given.value[j]);
                maximum = fmaxf(maximum, held[v][j]);
            }
            if (v % lines < lines - 1 || piece >= vectors) continue;
            __syncwarp();  // all lanes have read the piece
            ask(at.stage);
            at.advance();
        }
        maximum = over_lanes(maximum, larger);
#pragma unroll
        for (int v = 0; v < held_vectors; ++v) {
#pragma unroll
            for (int j = 0; j < width; ++j) {
                held[v][j] = exp_to_zero(held[v][j] - maximum);
                sum += held[v][j];
            }
        }
        sum = over_lanes(sum, both);
        if (lane == 0) of_warp[turn][warp] = {maximum, sum};
        cluster_barrier();  // those of all warps of all blocks are written

        Normalizer theirs[each];
        float top = maximum, total = 0.0f;
#pragma unroll
        for (int k = 0; k < each; ++k) {
            const int i = lane + 32 * k;
            theirs[k] = Normalizer::of_none();
            if (i < Cluster * warps) theirs[k] = *in_block(&of_warp[turn][i % warps], i / warps);
            top = fmaxf(top, theirs[k].maximum);
        }
        top = over_lanes(top, larger);
#pragma unroll
        for (int k = 0; k < each; ++k) total += theirs[k].sum * exp_to_zero(theirs[k].maximum - top);
        const float factor = exp_to_zero(maximum - top) / over_lanes(total, both);
        turn ^= 1;

        auto* to = reinterpret_cast<Line*>(output + row * columns) + begin;
#pragma unroll
        for (int v = 0; v < held_vectors; ++v) {
            const int i = first_piece + v / lines * step + lane + 32 * (v % lines);
            Line made;
#pragma unroll
            for (int j = 0; j < width; ++j) made.value[j] = from_float<T>(held[v][j] * factor);
            if (i < vectors) to[i] = made;
        }
    }
    cluster_barrier();  // what is in this block has been read: it may leave
}
