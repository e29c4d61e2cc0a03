// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 7 of attention in docs/ladders/attention.md: causal.
//
// The technique: a row sees no key after it, so that of the tiles of scores nearly half are all masked.
// Rungs 1 to 6 compute them; here a block stops behind the tile of its last row. Blocks then have from one
// step to as many as there are tiles. The longest go first (schedule/row_tiles.cuh).
//
// Predicted: 560 to 620 TFLOP/s on an H200 at a depth of 128. Only operations that are not masked count, so
// that rung 6 has half of its 610 to 650: it computes the masked half too. Lost are the masked halves of
// tiles on the diagonal, and the start of short loops.
//
// Element: __nv_bfloat16 or __half. Depth: 64, 128 or 256 elements of a row. BN: keys of a tile. Stages:
// tiles in each ring. Consumers: 2 or 3.

#include "epilogue/online_softmax.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/attention_tiles.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_tiles.cuh"
#include "schedule/turns.cuh"

template <class Element, int Depth, int BN, int Stages, int Consumers>
struct Shared {
    RowTile<Element, Consumers * 64, Depth> q;
    RowTile<Element, BN, Depth> k[Stages];
    ValueTile<Element, BN, Depth> v[Stages];
    RingBarriers<Stages> k_ring, v_ring;
    Mbarrier q_full;
};

template <class Element, int Depth, int BN, int Stages, int Consumers>
__global__ void __launch_bounds__((Consumers + 1) * warpgroup_threads, 1)
attention_causal(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                 const __grid_constant__ TensorMap map_v, Element* o, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth, BN, Stages, Consumers>*>(memory);
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring;
    const RowTiles<true, Consumers * 64, BN, Depth> order{sequence, heads};
    const auto [head, first_row, steps] = order.at(blockIdx.x);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(shared.q_full, 1);
        k_ring.init(Consumers * 4);  // a release per warp of the consumers
        v_ring.init(Consumers * 4);
    }
    __syncthreads();

    RingPosition<Stages> at;  // in both rings
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<Consumers>>();
        if (one_of_warpgroup(thread)) {
            mbarrier_arrive_expect(shared.q_full, shared.q.bytes);
            shared.q.load({map_q, head}, first_row, shared.q_full);
            for (int step = 0; step < steps; ++step, at.advance()) {
                k_ring.load(shared.k, at, MatrixOfMap{map_k, head}, step * BN);
                v_ring.load(shared.v, at, MatrixOfMap{map_v, head}, step * BN);
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<Consumers>>();
        const int consumer = warpgroup - 1, tile_row = consumer * 64, row = first_row + tile_row;
        Turns<Consumers> turns{consumer};
        float score[1][BN / 2], output[1][Depth / 2], factor[2];  // 64 rows over 128 threads
        unsigned p[BN / 16][4];  // of the same rows
        clear(output);
        OnlineSoftmax softmax(Depth);
        RingPosition<Stages> v_at;  // one step behind: the tile whose weights are in P
        mbarrier_wait(shared.q_full, 0);
        k_ring.wait_until_full(at);
        turns.begin();
        wgmma_fence();
        wgmma_scores(score, shared.q, tile_row, shared.k[0]);
        wgmma_commit();
        turns.end();
        wgmma_wait_all(score);
        k_ring.release(at, lane);
        mask_scores<true>(score[0], row, 0, sequence, thread);
        softmax.add(score[0], factor);
        pack_fragments<Element>(score[0], p);
        v_ring.wait_until_full(v_at);
        for (int step = 1; step < steps; ++step, v_at.advance()) {
            at.advance();
            k_ring.wait_until_full(at);
            turns.begin();
            wgmma_fence();
            wgmma_scores(score, shared.q, tile_row, shared.k[at.stage]);
            wgmma_commit();
            wgmma_output(output, p, shared.v[v_at.stage]);
            wgmma_commit();
            turns.end();

            wgmma_wait<1>();  // the scores are there; the output goes on
            fence_registers(score[0]);
            k_ring.release(at, lane);
            mask_scores<true>(score[0], row, step * BN, sequence, thread);
            softmax.add(score[0], factor);
            fence_registers(score[0]);
            // The next turn needs V. The wait is a loop, above which the compiler moves no wait for wgmma: so
            // the softmax stays ahead of that one.
            v_ring.wait_until_full(at);
            wgmma_wait_all(output);
            fence_registers(p);
            v_ring.release(v_at, lane);
            softmax.rescale(output[0], factor);
            pack_fragments<Element>(score[0], p);
        }
        turns.begin();
        wgmma_fence();
        wgmma_output(output, p, shared.v[v_at.stage]);
        wgmma_commit();
        turns.end(true);
        wgmma_wait_all(output);
        softmax.divide(output[0]);
        const MatrixC<Element> result{o + Index(head) * sequence * Depth, sequence, Depth, 1.0f, 0.0f};
        store_direct(output, result, row, 0, thread);
    }
}
