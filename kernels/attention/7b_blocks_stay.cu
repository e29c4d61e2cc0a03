// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 7b of attention in docs/ladders/attention.md: blocks that stay.
//
// The technique: persistent blocks (flash-attention-3). A block takes one tile of rows after the other, and
// its producer copies Q, K and V of the next ones while consumers work on this one: only the first tile of a
// block waits for copies, not each. Results take the place of the Q that they come from, and a warp that does
// nothing else stores them by TMA. A block asks for tiles one by one: if each had a fixed number of them, all
// would wait for the slowest multiprocessor. The price: shared memory for a second Q.
//
// Rung 8 is this file with LeanSoftmax: one FFMA a score, and a maximum is replaced only where it grows a
// lot.
//
// Predicted: 1.02 to 1.05 times as fast as rung 6 with 2048 keys, 0.99 to 1.01 times with 8192: copies and
// stores take a few percent of a block with few steps.
//
// Element: __nv_bfloat16 or __half. Depth: 64 or 128 elements of a row. Causal: row i sees keys up to i. BN:
// keys of a tile. Stages: tiles in each ring. Consumers: 2 or 3. Softmax: OnlineSoftmax or LeanSoftmax.
// taken: a counter that is zero.

#include "epilogue/bounded_softmax.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_tiles.cuh"
#include "schedule/store_tiles.cuh"
#include "schedule/turns.cuh"

using LeanSoftmax = BoundedSoftmax<1, 0>;

template <class Element, int Depth, int BN, int Stages, int Consumers>
struct Shared {
    RowTile<Element, Consumers * 64, Depth> q[2];
    RowTile<Element, BN, Depth> k[Stages];
    ValueTile<Element, BN, Depth> v[Stages];
    int index[2];  // of the tile whose rows are in Q
    Mbarrier written[2];  // set when its results have replaced Q
    RingBarriers<2> q_ring;
    RingBarriers<Stages> k_ring, v_ring;
};

template <class Element, int Depth, bool Causal, int BN, int Stages, int Consumers, class Softmax>
__global__ void __launch_bounds__((Consumers + 1) * warpgroup_threads, 1)
attention_blocks_stay(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                      const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_o,
                      unsigned* taken, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth, BN, Stages, Consumers>*>(memory);
    auto& q_ring = shared.q_ring;
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring;
    const RowTiles<Causal, Consumers * 64, BN, Depth> order{sequence, heads};
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        for (auto& one : shared.written) mbarrier_init(one, Consumers * 4);
        q_ring.init(1);
        k_ring.init(Consumers * 4);  // a release per warp of the consumers
        v_ring.init(Consumers * 4);
    }
    __syncthreads();

    RingPosition<2> q_at;
    RingPosition<Stages> at;  // in the rings of K and V
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<Consumers>>();
        if (one_of_warpgroup(thread)) {
            for (int index = blockIdx.x, next;; index = next, q_at.advance()) {
                q_ring.wait_until_empty(q_at);
                shared.index[q_at.stage] = index;
                if (index >= order.count()) break;
                next = order.next(taken);
                const auto tile = order.at(index);
                q_ring.load(shared.q, q_at, MatrixOfMap{map_q, tile.head}, tile.row);
                for (int step = 0; step < tile.steps; ++step, at.advance()) {
                    k_ring.load(shared.k, at, MatrixOfMap{map_k, tile.head}, step * BN);
                    v_ring.load(shared.v, at, MatrixOfMap{map_v, tile.head}, step * BN);
                }
            }
            mbarrier_arrive(q_ring.full[q_at.stage]);  // an index past the end, and no rows: readers stop
        } else if (thread / 32 == 1 && one_of_warpgroup(thread % 32)) {
            store_tiles(shared, order, map_o);
        }
    } else {  // a consumer
        grow_registers<consumer_registers<Consumers>>();
        const int consumer = warpgroup - 1, tile_row = consumer * 64;
        Turns<Consumers> turns{consumer};
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
        for (int index = blockIdx.x; index < order.count();) {
            const auto tile = order.at(index);
            Softmax softmax(Depth);
            const auto exponentiate = [&](int step) {
                k_ring.release(at, lane);
                mask_scores<Causal>(score[0], tile.row + tile_row, step * BN, sequence, thread);
                softmax.add(score[0], factor);
                fence_registers(score[0]);
                v_ring.wait_until_full(at);  // a loop, above which the compiler moves no wait for wgmma
            };
            start_scores();
            turns.end();
            wgmma_wait_all(score);
            exponentiate(0);
            pack_fragments<Element>(score[0], p);
            for (int step = 1; step < tile.steps; ++step) {
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
            index = shared.index[q_at.stage];
            turns.begin();
            wgmma_fence();
            wgmma_output(output, p, shared.v[v_at.stage], tile.steps > 1);
            wgmma_commit();
            turns.end(index >= order.count());
            wgmma_wait_all(output);
            v_ring.release(v_at, lane);
            v_at.advance();
            softmax.divide(output[0]);
            write_rows(shared.q[q_at.stage ^ 1], output, tile_row, thread, shared.written[q_at.stage ^ 1]);
        }
    }
}
