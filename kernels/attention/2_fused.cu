// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 2 of attention in docs/ladders/attention.md: fused.
//
// The technique: scores never leave the multiprocessor (flash-attention-2). Rung 1 moves 16 bytes a score
// through global memory. A block has 64 rows of Q, and goes through the keys in tiles of BN. The softmax of
// a row wants the maximum of all its scores, which is known at the end; so it is carried on
// (milakov-softmax): exponentials are relative to the maximum so far, and where it grows, the output so far
// is scaled down. The scores are the accumulators of one wgmma. Their exponentials, packed to 16 bits, are
// operand A of the next, by way of shared memory. The price: that scaling, for each output and tile.
//
// Predicted: 250 to 330 TFLOP/s on an H200 at a depth of 128. For rung 1 the prediction is 60 to 120.
// For a tile of 64 x 128 scores the tensor cores take 1024 cycles and 8192 exponentials 512, at 16 a cycle.
// Within a block nothing overlaps, and it waits for each copy. But two blocks fit a multiprocessor, and one
// multiplies while another exponentiates or waits.
//
// Element: __nv_bfloat16 or __half. Depth: 64 or 128 elements of a row. Causal: row i sees keys up to i. BN:
// keys of a tile.

#include "epilogue/online_softmax.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/attention_tiles.cuh"

template <class Element, int Depth, int BN>
struct Shared {
    RowTile<Element, 64, Depth> q;
    RowTile<Element, BN, Depth> k;
    ValueTile<Element, BN, Depth> v;
    RowTile<Element, 64, BN> p;
    Mbarrier full;
};

template <class Element, int Depth, bool Causal, int BN>
__global__ void __launch_bounds__(warpgroup_threads, 1)
attention_fused(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v, Element* o, int sequence) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth, BN>*>(memory);
    const int head = blockIdx.y, first_row = blockIdx.x * 64, thread = threadIdx.x;
    if (thread == 0) {
        mbarrier_init(shared.full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    float score[1][BN / 2], output[1][Depth / 2];  // 64 rows over 128 threads
    clear(output);
    OnlineSoftmax softmax(Depth);
    unsigned parity = 0;
    for (int first_key = 0; first_key < sequence; first_key += BN, parity ^= 1) {
        if (thread == 0) {
            const int of_q = first_key == 0 ? shared.q.bytes : 0;
            mbarrier_arrive_expect(shared.full, of_q + shared.k.bytes + shared.v.bytes);
            if (first_key == 0) shared.q.load({map_q, head}, first_row, shared.full);
            shared.k.load({map_k, head}, first_key, shared.full);
            shared.v.load({map_v, head}, first_key, shared.full);
        }
        mbarrier_wait(shared.full, parity);
        wgmma_fence();
        wgmma_scores(score, shared.q, 0, shared.k);
        wgmma_commit();
        wgmma_wait_all(score);

        mask_scores<Causal>(score[0], first_row, first_key, sequence, thread);
        float factor[2];
        softmax.add(score[0], factor);
        softmax.rescale(output[0], factor);
#pragma unroll
        for (int i = 0; i < BN / 64; ++i) {
            TmaStoreRing<Element, 64, 1>::fill(shared.p.panel[i].byte, score[0], 32 * i, thread);
        }
        fence_async_proxy();  // shows the thread's part of P to wgmma
        __syncthreads();  // P is written

        wgmma_fence();
        wgmma_output(output, shared.p, shared.v);
        wgmma_commit();
        wgmma_wait_all(output);
        __syncthreads();  // all wgmma have read the tiles
    }
    softmax.divide(output[0]);
    const MatrixC<Element> result{o + Index(head) * sequence * Depth, sequence, Depth, 1.0f, 0.0f};
    store_direct(output, result, first_row, 0, thread);
}
