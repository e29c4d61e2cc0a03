// output[r][c] = exp(input[r][c] - m) / S: maxima and sums are sent to the blocks that need them.
//
// The barrier of the file before orders all accesses: each warp waits there until its outputs of the row
// before are in the L2, though nobody in the cluster reads them. Here a warp sends its maximum and sum to all
// blocks of the cluster, by stores whose bytes an mbarrier counts there. A warp that has all of them goes on,
// and reads them from its own shared memory. One barrier of the cluster is left, at the start. None is needed
// at the end: a block has got all that is sent to it before it leaves.
//
// Again there are two places, by turns: a warp sends those of row r + 2 when those of row r + 1 have come
// from all warps, which have read those of row r by then.

#include "ptx/async_store.cuh"
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
softmax_sent_sums(const T* __restrict__ input, T* __restrict__ output, Index rows, Index columns) {
    constexpr int width = 16 / sizeof(T), room = Piece / 16, warps = Block / 32;  // room: vectors of a piece
    constexpr int held_vectors = Items / width, lines = room / 32;  // of a lane: in a row, and in a piece
    constexpr int each = ceil_div(Cluster * warps, 32);  // sums of the cluster that a lane reads
    constexpr unsigned nothing = sizeof(T) == 4 ? 0xff800000 : 0xff80ff80;  // -inf, whose exponential is 0
    using Line = Vector<T, width>;
    using Words = Vector<unsigned, 4>;  // a line's: filled as a whole, and not number by number
    alignas(128) extern __shared__ unsigned char memory[];
    __shared__ Mbarrier barriers[warps][Stages], sent[2];
    __shared__ Normalizer of_warp[2][Cluster * warps];
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
    if (threadIdx.x == 0) {
        for (Mbarrier& one : sent) mbarrier_init(one, 1);
    }
    if (lane == 0) {
        for (int stage = 0; stage < Stages; ++stage) mbarrier_init(full[stage], 1);
        fence_mbarrier_init();
    }
    __syncwarp();  // the barriers are there
#pragma unroll 1
    for (int stage = 0; stage < Stages; ++stage) ask(stage);
    cluster_barrier();  // the barriers of all blocks are there

    RingPosition<Stages> at;
    RingPosition<2> turn;
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
        if (threadIdx.x == 0) mbarrier_arrive_expect(sent[turn.stage], sizeof(of_warp[turn.stage]));
        if (lane < Cluster) {
            Normalizer& to = of_warp[turn.stage][cluster_rank() * warps + warp];
            store_pair_in_block(&to, maximum, sum, sent[turn.stage], lane);
        }
        mbarrier_wait(sent[turn.stage], turn.parity);

        Normalizer theirs[each];
        float top = maximum, total = 0.0f;
#pragma unroll
        for (int k = 0; k < each; ++k) {
            const int i = lane + 32 * k;
            theirs[k] = Normalizer::of_none();
            if (i < Cluster * warps) theirs[k] = of_warp[turn.stage][i];
            top = fmaxf(top, theirs[k].maximum);
        }
        top = over_lanes(top, larger);
#pragma unroll
        for (int k = 0; k < each; ++k) total += theirs[k].sum * exp_to_zero(theirs[k].maximum - top);
        const float factor = exp_to_zero(maximum - top) / over_lanes(total, both);
        turn.advance();

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
}
