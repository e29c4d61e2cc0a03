// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 3 of attention in docs/ladders/attention.md: a producer and two consumers.
//
// The technique: warp specialisation, as in hopper/3_wide_tile.cu (cutlass, flash-attention-3). A warpgroup
// of its own copies tiles of K and V into two rings and gives registers up (setmaxnreg). Two consumers with
// 64 rows of Q each use every tile that it copies: half as many bytes from the L2 as in rung 2, and while the
// L2 keeps up no copy is waited for. A tile of K is free for the next one as soon as both have their scores.
// The rings keep consumers within a few tiles of each other. So one may multiply while the other
// exponentiates, but nothing enforces it. The price: one block fills a multiprocessor, and nobody computes
// while it starts and ends.
//
// Predicted: 420 to 480 TFLOP/s on an H200 at a depth of 128. For rung 2 the prediction is 250 to 330.
//
// Element: __nv_bfloat16 or __half. Depth: 64 or 128 elements of a row. Causal: row i sees keys up to i. BN:
// keys of a tile. Stages: tiles in each ring. Consumers: 2 or 3.

#include "epilogue/online_softmax.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/attention_tiles.cuh"
#include "schedule/ring.cuh"

template <class Element, int Depth, int BN, int Stages, int Consumers>
struct Shared {
    RowTile<Element, Consumers * 64, Depth> q;
    RowTile<Element, BN, Depth> k[Stages];
    ValueTile<Element, BN, Depth> v[Stages];
    RowTile<Element, 64, BN> p[Consumers];
    RingBarriers<Stages> k_ring, v_ring;
    Mbarrier q_full;
};

template <class Element, int Depth, bool Causal, int BN, int Stages, int Consumers>
__global__ void __launch_bounds__((Consumers + 1) * warpgroup_threads, 1)
attention_two_consumers(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
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
        const int tile_row = (warpgroup - 1) * 64, row = first_row + tile_row;
        auto& p = shared.p[warpgroup - 1];
        float score[1][BN / 2], output[1][Depth / 2];  // 64 rows over 128 threads
        clear(output);
        OnlineSoftmax softmax(Depth);
        mbarrier_wait(shared.q_full, 0);
        for (int first_key = 0; first_key < sequence; first_key += BN, at.advance()) {
            k_ring.wait_until_full(at);
            wgmma_fence();
            wgmma_scores(score, shared.q, tile_row, shared.k[at.stage]);
            wgmma_commit();
            wgmma_wait_all(score);
            k_ring.release(at, lane);

            mask_scores<Causal>(score[0], row, first_key, sequence, thread);
            float factor[2];
            softmax.add(score[0], factor);
            softmax.rescale(output[0], factor);
            warpgroup_barrier(warpgroup);  // the wgmma of all warps have read the P before
#pragma unroll
            for (int i = 0; i < BN / 64; ++i) {
                TmaStoreRing<Element, 64, 1>::fill(p.panel[i].byte, score[0], 32 * i, thread);
            }
            fence_async_proxy();  // shows the thread's part of P to wgmma
            warpgroup_barrier(warpgroup);  // P is written

            v_ring.wait_until_full(at);
            wgmma_fence();
            wgmma_output(output, p, shared.v[at.stage]);
            wgmma_commit();
            wgmma_wait_all(output);
            v_ring.release(at, lane);
        }
        softmax.divide(output[0]);
        const MatrixC<Element> result{o + Index(head) * sequence * Depth, sequence, Depth, 1.0f, 0.0f};
        store_direct(output, result, row, 0, thread);
    }
}
