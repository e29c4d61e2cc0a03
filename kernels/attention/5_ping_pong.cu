// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 5 of attention in docs/ladders/attention.md: ping-pong.
//
// The technique: two consumers take turns on the tensor cores (flash-attention-3). For a tile of 64 x 128
// scores at a depth of 128 the wgmma take 1024 cycles, and the exponentials alone 512 more: 16 a cycle. In
// rung 4 nothing keeps both consumers from exponentiating at the same time, while the tensor cores wait.
// Here a turn is all that a consumer multiplies between two softmaxes: P @ V of one tile and Q @ K^T of the
// next. It begins when the other has started the wgmma of its own turn (schedule/turns.cuh). So one
// exponentiates while the other multiplies. The loop begins in the middle of a step: the first scores come
// before it, the last output after it.
//
// Predicted: 560 to 600 TFLOP/s on an H200 at a depth of 128. For rung 4 the prediction is 480 to 540.
//
// Element: __nv_bfloat16 or __half. Depth: 64 or 128 elements of a row. Causal: row i sees keys up to i. BN:
// keys of a tile. Stages: tiles in each ring. Consumers: 2 or 3.

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
attention_ping_pong(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
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
        for (int step = 1; step < steps; ++step, v_at.advance()) {
            at.advance();
            v_ring.wait_until_full(v_at);
            k_ring.wait_until_full(at);
            turns.begin();
            wgmma_fence();
            wgmma_output(output, p, shared.v[v_at.stage]);
            wgmma_scores(score, shared.q, tile_row, shared.k[at.stage]);
            wgmma_commit();
            turns.end();
            wgmma_wait_all(output);
            fence_registers(score[0]);
            fence_registers(p);
            v_ring.release(v_at, lane);
            k_ring.release(at, lane);

            mask_scores<Causal>(score[0], row, step * BN, sequence, thread);
            softmax.add(score[0], factor);
            softmax.rescale(output[0], factor);
            pack_fragments<Element>(score[0], p);
        }
        v_ring.wait_until_full(v_at);
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
