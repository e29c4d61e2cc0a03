// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, operands in e4m3, result in bf16, fp32 accumulators.
// The schedule of rungs 6 and 7 of attention in docs/ladders/attention.md, in fp8.
//
// The technique: wgmma multiplies elements of 8 bits at twice the rate, but reads them along K only, and V
// lies the other way. So three warps that have nothing else to do transpose each tile of it
// (flash-attention-3): ldmatrix.trans transposes pairs of bytes, byte permutations bring the bytes of one
// column together, and stmatrix stores lines of keys. A sum over keys does not care about their order: they
// are stored in the one in which the accumulators of S hold them, so that no weight moves to another thread.
// Weights are rounded to e4m3, scaled so that it has its full precision for all but the least of them
// (epilogue/e4m3_softmax.cuh). The tensor cores keep 14 bits of a sum of fp8 products (deepseek-v3): of
// thousands of values of one sign the last would be lost. So P @ V of each tile begins at zero, and is added
// to the output in fp32 by the FFMA that scales it.
//
// Predicted: 770 to 990 TFLOP/s on an H200. For 128 x 128 scores the tensor cores take 1024 cycles, half of
// what they take in bf16, and the exponentials as many as ever: 1024.
//
// Depth: 128 elements of a row. Causal: row i sees keys up to i. Stages: tiles in each ring.

#include "epilogue/e4m3_softmax.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/attention_tiles.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_tiles.cuh"
#include "schedule/turns.cuh"

constexpr int tile = 128;  // rows of Q of a block, and keys of a step
constexpr int consumers = 2, transposing_warps = 3;

template <int Depth, int Stages>
struct Shared {
    RowTile<E4m3, tile, Depth> q, k[Stages], v[Stages];
    RowTile<E4m3, Depth, tile> transposed[Stages];  // V
    RingBarriers<Stages> k_ring, v_ring, transposed_ring;
    Mbarrier q_full;
};

// A tile of V, by three warps: 32 keys of 16 columns at a time.
template <int Depth>
__device__ inline void transpose(const RowTile<E4m3, tile, Depth>& v, RowTile<E4m3, Depth, tile>& to,
                                 int warp, int lane) {
    // Word i of a lane: bytes 2 * (lane / 4) and the next of keys 8i + 2 * (lane % 4) and the next. Half of
    // the lanes store their odd column first, so that eight lines lie in different banks.
    const unsigned even = 0x6420, odd = 0x7531, first = lane < 16 ? even : odd, second = first ^ even ^ odd;
    const int row = lane % 8, line = 2 * row + (row / 4 ^ lane / 8 % 2), byte = lane / 16 * 16;
#pragma unroll 2
    for (int part = warp; part < Depth / 16 * (tile / 32); part += transposing_warps) {
        const int keys = part % (tile / 32) * 32, column = part / (tile / 32) * 16;
        unsigned word[4], stored[4];
        ldmatrix_trans(shared_address(v.panel[0].byte) + swizzled(keys + lane, column), word);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            stored[i] = __byte_perm(word[i], word[i + 1], first);
            stored[i + 1] = __byte_perm(word[i], word[i + 1], second);
        }
        stmatrix(to.panel[0].byte + swizzled(column + line, keys + byte), stored);
    }
}

template <int Depth, bool Causal, int Stages>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
attention_fp8(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
              const __grid_constant__ TensorMap map_v, __nv_bfloat16* o, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Depth, Stages>*>(memory);
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring, &transposed_ring = shared.transposed_ring;
    const RowTiles<Causal, tile, tile, Depth / 2> order{sequence, heads};  // its elements have two bytes
    const auto [head, first_row, steps] = order.at(blockIdx.x);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        mbarrier_init(shared.q_full, 1);
        k_ring.init(consumers * 4);  // a release per warp that reads
        v_ring.init(transposing_warps);
        transposed_ring.init(consumers * 4, transposing_warps);
    }
    __syncthreads();

    RingPosition<Stages> at;  // in all rings
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<consumers>>();
        if (one_of_warpgroup(thread)) {
            mbarrier_arrive_expect(shared.q_full, shared.q.bytes);
            shared.q.load({map_q, head}, first_row, shared.q_full);
            for (int step = 0; step < steps; ++step, at.advance()) {
                k_ring.load(shared.k, at, MatrixOfMap{map_k, head}, step * tile);
                v_ring.load(shared.v, at, MatrixOfMap{map_v, head}, step * tile);
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
        grow_registers<consumer_registers<consumers>>();
        const int consumer = warpgroup - 1, tile_row = consumer * 64, row = first_row + tile_row;
        Turns<consumers> turns{consumer};
        float score[1][tile / 2], partial[1][Depth / 2], output[1][Depth / 2];  // 64 rows over 128 threads
        unsigned p[tile / 32][4];  // of the same rows
        float factor[2];
        clear(output);
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
            wgmma_output(partial, p, shared.transposed[v_at.stage]);
            wgmma_commit();
            turns.end();

            wgmma_wait<1>();  // the scores are there; the output goes on
            fence_registers(score[0]);
            k_ring.release(at, lane);
            mask_scores<Causal>(score[0], row, step * tile, sequence, thread);
            const float before[2] = {factor[0], factor[1]};  // from the tile before the last to the last
            softmax.add(score[0], factor);
            fence_registers(score[0]);
            transposed_ring.wait_until_full(at);  // a loop, above which the compiler moves no wait for wgmma
            wgmma_wait_all(partial);
            fence_registers(p);
            transposed_ring.release(v_at, lane);
            scale_and_add(output[0], before, partial[0]);
            pack_fragments_e4m3(score[0], p);
        }
        turns.begin();
        wgmma_fence();
        wgmma_output(partial, p, shared.transposed[v_at.stage]);
        wgmma_commit();
        turns.end(true);
        wgmma_wait_all(partial);
        scale_and_add(output[0], factor, partial[0]);
        softmax.divide(output[0]);
        const MatrixC<__nv_bfloat16> result{o + Index(head) * sequence * Depth, sequence, Depth, 1.0f, 0.0f};
        store_direct(output, result, row, 0, thread);
    }
}
