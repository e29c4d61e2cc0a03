// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 6 of attention in docs/ladders/attention.md: overlap within a consumer.
//
// The technique: a consumer's own P @ V runs while it computes exponentials (flash-attention-3). A turn first
// starts Q @ K^T of the next tile, then P @ V of this one, in a group of wgmma of its own. As soon as the
// scores are there (wgmma_wait<1>), the consumer exponentiates them, while the tensor cores go on with its
// P @ V. Only then it waits for the output, to scale it down where the maximum has grown. A softmax is
// more than exponentials: for each score it also takes a maximum, a product, two sums and half a word to
// pack. We guess that in rung 5 the other consumer's turn does not cover all of it. At a depth of 128 a
// thread holds P, the next scores and the output at once: 160 of its 232 registers.
//
// Predicted: 610 to 650 TFLOP/s on an H200 at a depth of 128. For rung 5 the prediction is 560 to 600.
//
// Element: __nv_bfloat16 or __half. Depth: 64, 128 or 256 elements of a row. Causal: row i sees keys up to i.
// BN: keys of a tile. Stages: tiles in each ring. Consumers: 2 or 3.

#include "epilogue/online_softmax.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/attention_tiles.cuh"
#include "schedule/ring.cuh"
#include "schedule/turns.cuh"

template <class Element, int Depth, int BN, int Stages, int Consumers>
struct Shared {
    RowTile<Element, Consumers * 64, Depth> q;
    RowTile<Element, BN, Depth> k[Stages];
    ValueTile<Element, BN, Depth> v[Stages];
    RingBarriers<Stages> k_ring, v_ring;
    Mbarrier q_full;
};

template <class Element, int Depth, bool Causal, int BN, int Stages, int Consumers>
__global__ void __launch_bounds__((Consumers + 1) * warpgroup_threads, 1)
attention_overlap(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v, Element* o, int sequence) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth, BN, Stages, Consumers>*>(memory);
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring;
    const int head = blockIdx.y, first_row = blockIdx.x * Consumers * 64;
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
            for (int first_key = 0; first_key < sequence; first_key += BN, at.advance()) {
                k_ring.load(shared.k, at, MatrixOfMap{map_k, head}, first_key);
                v_ring.load(shared.v, at, MatrixOfMap{map_v, head}, first_key);
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<Consumers>>();
        const int consumer = warpgroup - 1, tile_row = consumer * 64, row = first_row + tile_row;
        const int steps = ceil_div(sequence, BN);
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
        mask_scores<Causal>(score[0], row, 0, sequence, thread);
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
            mask_scores<Causal>(score[0], row, step * BN, sequence, thread);
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
