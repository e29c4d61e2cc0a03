// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, operands in e4m3, result in bf16.
// The schedule of rungs 6 and 7 of attention in docs/ladders/attention.md, in fp8.
//
// The technique: wgmma multiplies elements of 8 bits at twice the rate, but reads them along K only, and V
// lies the other way. So three warps transpose each tile of it (mma/transposed_values.cuh). Weights are
// rounded to e4m3 (epilogue/e4m3_softmax.cuh), ahead of the wait for P @ V of the tile before.
//
// The tensor cores keep 14 bits of a sum of fp8 products (deepseek-v3): of thousands of values of one sign
// the last would be lost. So their sum of `Tiles` tiles of keys is added in fp32 (promotion; vllm-flash-
// attention). They may also add up all tiles (flash-attention-3): no FFMA between two P @ V, and a larger
// error where values have one sign. Without promotion a thread has 64 registers more. They hold tiles of 192
// or 224 keys: what a step takes once, as waits, shuffles and turns do, comes less often. Or there is a third
// consumer, with tiles of 96 keys: more warps exponentiate while one multiplies.
//
// Predicted: 770 to 940 TFLOP/s on an H200 with promotion at each tile, up to 4 % more every four tiles, and
// 860 to 1070 without promotion and with 224 keys or three consumers.
//
// Depth: 128 elements of a row. Causal: row i sees keys up to i. BN: keys of a tile. Tiles: of a sum of the
// tensor cores, or 0 for all. Stages: tiles in each ring. Consumers: 2 or 3.

#include "epilogue/e4m3_softmax.cuh"
#include "epilogue/promoted_output.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/transposed_values.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_tiles.cuh"
#include "schedule/turns.cuh"

template <int Depth, int BN, int Stages, int Consumers>
struct Shared {
    RowTile<E4m3, Consumers * 64, Depth> q;
    RowTile<E4m3, BN, Depth> k[Stages], v[Stages];
    TransposedTile<Depth, BN> transposed[Stages];  // V
    RingBarriers<Stages> k_ring, v_ring, transposed_ring;
    Mbarrier q_full;
};

template <int Depth, bool Causal, int BN, int Tiles, int Stages, int Consumers>
__global__ void __launch_bounds__((Consumers + 1) * warpgroup_threads, 1)
attention_fp8_promoted(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                       const __grid_constant__ TensorMap map_v, __nv_bfloat16* o, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Depth, BN, Stages, Consumers>*>(memory);
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring, &transposed_ring = shared.transposed_ring;
    const RowTiles<Causal, Consumers * 64, BN, Depth / 2> order{sequence, heads};  // of elements of two bytes
    const auto [head, first_row, steps] = order.at(blockIdx.x);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(shared.q_full, 1);
        k_ring.init(Consumers * 4);  // a release per warp that reads
        v_ring.init(transposing_warps);
        transposed_ring.init(Consumers * 4, transposing_warps);
    }
    __syncthreads();

    RingPosition<Stages> at;  // in all rings
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<Consumers>>();
        if (one_of_warpgroup(thread)) {
            mbarrier_arrive_expect(shared.q_full, shared.q.bytes);
            shared.q.load({map_q, head}, first_row, shared.q_full);
            for (int step = 0; step < steps; ++step, at.advance()) {
                k_ring.load(shared.k, at, MatrixOfMap{map_k, head}, step * BN);
                v_ring.load(shared.v, at, MatrixOfMap{map_v, head}, step * BN);
            }
        } else if (thread >= 32) {
            for (int step = 0; step < steps; ++step, at.advance()) {
                v_ring.wait_until_full(at);
                transposed_ring.wait_until_empty(at);
                transpose(shared.v[at.stage], shared.transposed[at.stage], thread / 32 - 1, lane);
                fence_async_proxy();  // shows the thread's part to wgmma
                __syncwarp();
                v_ring.release(at, lane);
                if (lane == 0) mbarrier_arrive(transposed_ring.full[at.stage]);
            }
        }
    } else {  // a consumer
        grow_registers<consumer_registers<Consumers>>();
        const int consumer = warpgroup - 1, tile_row = consumer * 64, row = first_row + tile_row;
        Turns<Consumers> turns{consumer};
        float score[1][BN / 2], factor[2];  // 64 rows over 128 threads
        unsigned p[BN / 32][4];  // of the same rows
        unsigned short pair[BN / 4];  // of the next P
        PromotedOutput<Tiles, Depth / 2> output;
        E4m3Softmax softmax(Depth);
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
        pack_fragments_e4m3(score[0], p);
        transposed_ring.wait_until_full(v_at);
        for (int step = 1; step < steps; ++step, v_at.advance()) {
            at.advance();
            k_ring.wait_until_full(at);
            turns.begin();
            wgmma_fence();
            wgmma_scores(score, shared.q, tile_row, shared.k[at.stage]);
            wgmma_commit();
            output.start(p, shared.transposed[v_at.stage]);
            wgmma_commit();
            turns.end();

            wgmma_wait<1>();  // the scores are there; the output goes on
            fence_registers(score[0]);
            k_ring.release(at, lane);
            mask_scores<Causal>(score[0], row, step * BN, sequence, thread);
            softmax.add(score[0], factor);
            round_pairs(score[0], pair);
            fence_registers(pair);
            transposed_ring.wait_until_full(at);  // a loop, above which the compiler moves no wait for wgmma
            wgmma_wait_all(output.sum);
            fence_registers(p);
            transposed_ring.release(v_at, lane);
            output.take(factor);
            pack_fragments_e4m3(pair, p);
        }
        turns.begin();
        wgmma_fence();
        output.start(p, shared.transposed[v_at.stage]);
        wgmma_commit();
        turns.end(true);
        wgmma_wait_all(output.sum);
        auto& sums = output.finish();
        softmax.divide(sums[0]);
        const MatrixC<__nv_bfloat16> result{o + Index(head) * sequence * Depth, sequence, Depth, 1.0f, 0.0f};
        store_direct(sums, result, row, 0, thread);
    }
}
