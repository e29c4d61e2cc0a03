// O = softmax(Q @ K^T / sqrt(d)) @ V of each head, operands in e4m3, result in bf16: attention_fp8_promoted,
// never promoted and with three consumers, by blocks that stay and end together.
//
// The technique: that of rungs 7b and 9 in 16 bits. A block takes one tile of rows after the other, and its
// producer copies and transposes for the next ones meanwhile. The tiles of the last two waves are cut along
// the keys, in equal shares for all blocks (schedule/stream_k.cuh). Q has two places. Results are larger than
// Q and cannot take its place: they are stored from registers. Tiles have as many keys: there is no mask.
//
// Predicted: 1.06 to 1.10 times as fast with 8192 keys. 1376 tiles are 10.4 waves of 132 blocks, and take 11.
//
// RareSoftmax replaces a maximum only where that more than halves the exponentials: outputs are seldom
// scaled. flags: zeros. parts: what blocks leave.

#include "epilogue/e4m3_softmax.cuh"
#include "epilogue/softmax_parts.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/transposed_values.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_tiles.cuh"
#include "schedule/stream_k.cuh"
#include "schedule/turns.cuh"

using RareSoftmax = BoundedSoftmax<1, 7>;

constexpr int depth = 128, consumers = 3, tile_rows = 64 * consumers, tile_keys = 96, stages = 2;

struct Shared {
    RowTile<E4m3, tile_rows, depth> q[2];
    RowTile<E4m3, tile_keys, depth> k[stages], v[stages];
    TransposedTile<depth, tile_keys> transposed[stages];  // V
    RingBarriers<2> q_ring;
    RingBarriers<stages> k_ring, v_ring, transposed_ring;
};

template <class Softmax>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
attention_fp8_even(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                   const __grid_constant__ TensorMap map_v, __nv_bfloat16* o, unsigned* flags,
                   float* parts, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared*>(memory);
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring, &transposed_ring = shared.transposed_ring;
    const RowTiles<false, tile_rows, tile_keys, depth / 2> order{sequence, heads};  // of two bytes an element
    const StreamK cut(order.count(), ceil_div(sequence, tile_keys), gridDim.x);
    const TileSteps first = cut.first(blockIdx.x);
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        shared.q_ring.init(consumers * 4);  // a release per warp that reads
        k_ring.init(consumers * 4);
        v_ring.init(transposing_warps);
        transposed_ring.init(consumers * 4, transposing_warps);
    }
    __syncthreads();

    RingPosition<2> q_at;
    RingPosition<stages> at;  // in the other rings
    if (warpgroup == 0) {  // the producer
        shrink_registers<56>();  // those that transpose V take more than elsewhere
        if (one_of_warpgroup(thread)) {
            for (TileSteps work = first; work.steps > 0; work = cut.after(work, blockIdx.x), q_at.advance()) {
                const auto tile = order.at(work.tile);
                shared.q_ring.load(shared.q, q_at, MatrixOfMap{map_q, tile.head}, tile.row);
                for (int step = 0; step < work.steps; ++step, at.advance()) {
                    const int first_key = (work.first + step) * tile_keys;
                    k_ring.load(shared.k, at, MatrixOfMap{map_k, tile.head}, first_key);
                    v_ring.load(shared.v, at, MatrixOfMap{map_v, tile.head}, first_key);
                }
            }
        } else if (thread >= 32) {
            for (TileSteps work = first; work.steps > 0; work = cut.after(work, blockIdx.x)) {
                for (int step = 0; step < work.steps; ++step, at.advance()) {
                    v_ring.wait_until_full(at);
                    transposed_ring.wait_until_empty(at);
                    transpose(shared.v[at.stage], shared.transposed[at.stage], thread / 32 - 1, lane);
                    fence_async_proxy();  // shows the thread's part to wgmma
                    __syncwarp();
                    v_ring.release(at, lane);
                    if (lane == 0) mbarrier_arrive(transposed_ring.full[at.stage]);
                }
            }
        }
    } else {  // a consumer
        grow_registers<152>();
        const int consumer = warpgroup - 1, tile_row = consumer * 64;
        Turns<consumers> turns{consumer};
        float score[1][tile_keys / 2], output[1][depth / 2], factor[2];  // 64 rows over 128 threads
        unsigned p[tile_keys / 32][4];  // of the same rows
        unsigned short pair[tile_keys / 4];  // of the next P
        RingPosition<stages> v_at;  // one step behind: the tile whose weights are in P
        const auto start_scores = [&] {
            k_ring.wait_until_full(at);
            turns.begin();
            wgmma_fence();
            wgmma_scores(score, shared.q[q_at.stage], tile_row, shared.k[at.stage]);
            wgmma_commit();
        };
        for (TileSteps work = first, next; work.steps > 0; work = next, q_at.advance()) {
            Softmax softmax(depth);
            const auto exponentiate = [&](int step) {
                k_ring.release(at, lane);
                if (step == work.steps - 1) shared.q_ring.release(q_at, lane);
                mask_scores<false>(score[0], 0, (work.first + step) * tile_keys, sequence, thread);
                softmax.add(score[0], factor);
                round_pairs(score[0], pair);
                fence_registers(pair);
                transposed_ring.wait_until_full(at);  // a loop, above which no wait for wgmma is moved
            };
            shared.q_ring.wait_until_full(q_at);
            start_scores();
            turns.end();
            wgmma_wait_all(score);
            exponentiate(0);
            pack_fragments_e4m3(pair, p);
            for (int step = 1; step < work.steps; ++step) {
                at.advance();
                start_scores();
                wgmma_output(output, p, shared.transposed[v_at.stage], step > 1);
                wgmma_commit();
                turns.end();
                wgmma_wait<1>();  // the scores are there; the output goes on
                fence_registers(score[0]);
                exponentiate(step);
                wgmma_wait_all(output);
                fence_registers(p);
                transposed_ring.release(v_at, lane);
                v_at.advance();
                softmax.rescale(output[0], factor);
                pack_fragments_e4m3(pair, p);
            }
            at.advance();
            next = cut.after(work, blockIdx.x);
            turns.begin();
            wgmma_fence();
            wgmma_output(output, p, shared.transposed[v_at.stage], work.steps > 1);
            wgmma_commit();
            turns.end(next.steps == 0);
            wgmma_wait_all(output);
            transposed_ring.release(v_at, lane);
            v_at.advance();
            const int part = (blockIdx.x * consumers + consumer) * 4 + thread / 32;
            if (work.has_last_step(cut.steps)) {
                const int other = part - consumers * 4;  // of the block before this one
                if (!work.has_first_step()) add_part(softmax, output[0], parts, flags, other, lane);
                softmax.divide(output[0]);
                const auto tile = order.at(work.tile);
                __nv_bfloat16* const of_head = o + Index(tile.head) * sequence * depth;
                const MatrixC<__nv_bfloat16> result{of_head, sequence, depth, 1.0f, 0.0f};
                store_direct(output, result, tile.row + tile_row, 0, thread);
            } else {
                leave_part(softmax, output[0], parts, flags, part, lane);
            }
        }
    }
}
