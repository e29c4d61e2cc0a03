// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 11 of attention in docs/ladders/attention.md: blocks that end together.
//
// The technique: stream-K (schedule/stream_k.cuh). In rung 10 blocks take tiles of rows until there are none,
// and at the end some blocks have one more tile while the others are idle. Here the tiles of the last two
// waves are cut along the keys, in equal shares for all blocks. A block with a tile's first keys leaves its
// output in global memory, with maxima and sums; the one with the last keys adds them. The price: these
// stores, loads and waits. Tiles must have as many keys, so there is no mask.
//
// Predicted: 1.02 to 1.03 times as fast as rung 10: 2048 tiles are 15.5 waves of 132 blocks, and take 16.
//
// Element: __nv_bfloat16 or __half. Depth: 64 or 128 elements of a row. BN: keys of a tile. Stages: tiles in
// each ring. Softmax: LeanSoftmax or Eager24. taken, flags: zeros. parts: what blocks leave.

#include "epilogue/eager_softmax.cuh"
#include "epilogue/softmax_parts.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_tiles.cuh"
#include "schedule/store_tiles.cuh"
#include "schedule/stream_k.cuh"
#include "schedule/turns.cuh"

using LeanSoftmax = BoundedSoftmax<1, 0>;  // of rung 9
using Eager24 = EagerSoftmax<24>;

constexpr int consumers = 2, tile_rows = 64 * consumers;

template <class Element, int Depth, int BN, int Stages>
struct Shared {
    RowTile<Element, tile_rows, Depth> q[2];
    RowTile<Element, BN, Depth> k[Stages];
    ValueTile<Element, BN, Depth> v[Stages];
    TileSteps work[2];  // of the tile whose rows are in Q
    Mbarrier written[2];  // set when its results have replaced Q, or have been left
    RingBarriers<2> q_ring;
    RingBarriers<Stages> k_ring, v_ring;
};

template <class Element, int Depth, int BN, int Stages, class Softmax>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
attention_even_blocks(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                      const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_o,
                      unsigned* taken, unsigned* flags, float* parts, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth, BN, Stages>*>(memory);
    auto& q_ring = shared.q_ring;
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring;
    const RowTiles<false, tile_rows, BN, Depth> order{sequence, heads};
    const StreamK cut(order.count(), ceil_div(sequence, BN), gridDim.x);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        for (auto& one : shared.written) mbarrier_init(one, consumers * 4);
        q_ring.init(1);
        k_ring.init(consumers * 4);  // a release per warp of the consumers
        v_ring.init(consumers * 4);
    }
    __syncthreads();

    RingPosition<2> q_at;
    RingPosition<Stages> at;  // in the rings of K and V
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();
        if (one_of_warpgroup(thread)) {
            int index = blockIdx.x, end = cut.begin_of_share(blockIdx.x + 1);
            for (;; q_at.advance()) {
                TileSteps work{index, 0, cut.steps};
                if (index >= cut.whole) {  // no whole tile is left
                    work = cut.last_part(blockIdx.x, end);
                    end -= work.steps;
                }
                q_ring.wait_until_empty(q_at);
                shared.work[q_at.stage] = work;
                if (work.steps == 0) break;
                if (index < cut.whole) index = take_tile(taken, cut.whole);
                const auto tile = order.at(work.tile);
                q_ring.load(shared.q, q_at, MatrixOfMap{map_q, tile.head}, tile.row);
                for (int step = 0; step < work.steps; ++step, at.advance()) {
                    const int first_key = (work.first + step) * BN;
                    k_ring.load(shared.k, at, MatrixOfMap{map_k, tile.head}, first_key);
                    v_ring.load(shared.v, at, MatrixOfMap{map_v, tile.head}, first_key);
                }
            }
            mbarrier_arrive(q_ring.full[q_at.stage]);  // no steps, and no rows: readers stop
        } else if (thread / 32 == 1 && one_of_warpgroup(thread % 32)) {
            store_tiles(shared, order, cut, map_o);
        }
    } else {  // a consumer
        grow_registers<consumer_registers<consumers>>();
        const int consumer = warpgroup - 1, tile_row = consumer * 64;
        Turns<consumers> turns{consumer};
        float score[1][BN / 2], output[1][Depth / 2], factor[2];  // 64 rows over 128 threads
        unsigned p[BN / 16][4];  // of the same rows
        RingPosition<Stages> v_at;  // one step behind: the tile whose weights are in P
        const auto start_scores = [&] {
            k_ring.wait_until_full(at);
            turns.begin();
            wgmma_fence();
            wgmma_scores(score, shared.q[q_at.stage], tile_row, shared.k[at.stage]);
            wgmma_commit();
        };
        q_ring.wait_until_full(q_at);
        for (TileSteps work = cut.first(blockIdx.x); work.steps > 0;) {
            Softmax softmax(Depth);
            const auto exponentiate = [&](int step) {
                k_ring.release(at, lane);
                mask_scores<false>(score[0], 0, (work.first + step) * BN, sequence, thread);
                softmax.add(score[0], factor);
                fence_registers(score[0]);
                v_ring.wait_until_full(at);  // a loop, above which the compiler moves no wait for wgmma
            };
            start_scores();
            turns.end();
            wgmma_wait_all(score);
            exponentiate(0);
            pack_fragments<Element>(score[0], p);
            for (int step = 1; step < work.steps; ++step) {
                at.advance();
                start_scores();
                wgmma_output(output, p, shared.v[v_at.stage], step > 1);
                wgmma_commit();
                turns.end();
                wgmma_wait<1>();
                fence_registers(score[0]);
                exponentiate(step);
                wgmma_wait_all(output);
                fence_registers(p);
                v_ring.release(v_at, lane);
                v_at.advance();
                softmax.rescale(output[0], factor);
                pack_fragments<Element>(score[0], p);
            }
            at.advance();
            q_at.advance();
            q_ring.wait_until_full(q_at);
            const TileSteps next = shared.work[q_at.stage];
            turns.begin();
            wgmma_fence();
            wgmma_output(output, p, shared.v[v_at.stage], work.steps > 1);
            wgmma_commit();
            turns.end(next.steps == 0);
            wgmma_wait_all(output);
            v_ring.release(v_at, lane);
            v_at.advance();
            auto& written = shared.written[q_at.stage ^ 1];
            const int part = (blockIdx.x * consumers + consumer) * 4 + thread / 32;
            if (work.has_last_step(cut.steps)) {
                const int other = part - consumers * 4;  // of the block before this one
                if (!work.has_first_step()) add_part(softmax, output[0], parts, flags, other, lane);
                softmax.divide(output[0]);
                write_rows(shared.q[q_at.stage ^ 1], output, tile_row, thread, written);
            } else {
                leave_part(softmax, output[0], parts, flags, part, lane);
                if (lane == 0) mbarrier_arrive(written);
            }
            work = next;
        }
    }
}
