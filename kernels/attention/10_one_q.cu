// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 10 of attention in docs/ladders/attention.md: one Q.
//
// The technique: the blocks of rung 9 without their second Q. With rows of 256 elements Q and two stages of
// 80 keys take 225 of 227 KiB of shared memory. The next Q is copied when both consumers have their last
// scores. Results leave through the ring of V (flash-attention-3): behind the V of a tile each consumer gets
// a stage that nobody fills, and releases it in the next tile, when TMA has read what it wrote. K runs a step
// ahead of V, and so waits for no store. The price: the first V of a tile does.
//
// Predicted: 1.04 to 1.07 times as fast as rung 6 with 8192 keys of 256 elements, 1.08 to 1.14 with 2048.
// Element: __nv_bfloat16 or __half. Depth: 64, 128 or 256 elements of a row. Causal: row i sees keys up to
// i. BN: keys of a tile. Stages: tiles in each ring. taken, flags: zeros. parts: what blocks leave.

#include "epilogue/softmax_parts.cuh"
#include "epilogue/trusting_softmax.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_work.cuh"
#include "schedule/store_tiles.cuh"
#include "schedule/turns.cuh"

constexpr int consumers = 2, tile_rows = 64 * consumers;

template <class Element, int Depth, int BN, int Stages>
struct Shared {
    RowTile<Element, tile_rows, Depth> q[1];
    RowTile<Element, BN, Depth> k[Stages];
    ValueTile<Element, BN, Depth> v[Stages];
    RowWork work[2];  // with the rows in Q, and before or after that
    RingBarriers<1> q_ring;
    RingBarriers<Stages> k_ring, v_ring;
};

template <class Element, int Depth, bool Causal, int BN, int Stages>
__global__ void __launch_bounds__((consumers + 1) * warpgroup_threads, 1)
attention_one_q(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_o,
                unsigned* taken, unsigned* flags, float* parts, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth, BN, Stages>*>(memory);
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        shared.q_ring.init(consumers * warpgroup_threads);  // a release by each thread that reads `work`
        k_ring.init(consumers * 4);                         // a release per warp of the consumers
        v_ring.init(consumers * 4);
    }
    __syncthreads();
    RingPosition<1> q_at;
    RingPosition<Stages> at, v_at;  // in the rings of K and V
    if (warpgroup == 0) {  // the producer
        shrink_registers<24>();
        if (one_of_warpgroup(thread)) {
            RowWorks<Causal, tile_rows, BN, Depth> works(sequence, heads, taken);
            bool has_results = false;
            const auto hand_out_stages = [&] {  // for results of the work before
                for (int i = 0; has_results && i < consumers; ++i, v_at.advance()) {
                    v_ring.wait_until_empty(v_at);
                    mbarrier_arrive(v_ring.full[v_at.stage]);
                }
            };
            for (bool is_last = false; !is_last; q_at.advance()) {
                const RowWork work = works.work();
                shared.q_ring.wait_until_empty(q_at);
                shared.work[q_at.parity] = work;
                const MatrixOfMap k{map_k, work.head}, v{map_v, work.head};
                shared.q_ring.load(shared.q, q_at, MatrixOfMap{map_q, work.head}, work.row);
                k_ring.load(shared.k, at, k, work.first_key);
                for (int step = 0; step < work.steps; ++step, v_at.advance()) {
                    const int key = work.first_key + step * BN;
                    at.advance();
                    if (step + 1 < work.steps) {
                        k_ring.load(shared.k, at, k, key + BN);
                    } else {
                        shared.work[q_at.parity].is_last = is_last = !works.take();
                    }
                    if (step == 0) hand_out_stages();
                    v_ring.load(shared.v, v_at, v, key);
                }
                has_results = work.has_last;
            }
            hand_out_stages();
        }
    } else {  // a consumer
        grow_registers<240>();  // an output takes 128 of them
        const int consumer = warpgroup - 1;
        Turns<consumers> turns{consumer};
        float score[1][BN / 2], output[1][Depth / 2], factor[2];  // 64 rows over 128 threads
        unsigned p[BN / 16][4];  // of the same rows
        StageOfResults<consumers> results;
        const auto start_scores = [&] {
            k_ring.wait_until_full(at);
            turns.begin();
            wgmma_fence();
            wgmma_scores(score, shared.q[0], consumer * 64, shared.k[at.stage]);
            wgmma_commit();
        };
        for (bool is_last = false; !is_last; q_at.advance()) {
            shared.q_ring.wait_until_full(q_at);
            const RowWork& work = shared.work[q_at.parity];
            const int row = work.row + consumer * 64, first_key = work.first_key;
            const int steps = Causal ? const_min(work.steps, ceil_div(row + 64, BN)) : work.steps;
            TrustingSoftmax softmax(Depth);
            const auto exponentiate = [&](int step) {
                k_ring.release(at, lane);
                at.advance();
                if (step + 1 == steps) mbarrier_arrive(shared.q_ring.empty[0]);
                mask_scores<Causal>(score[0], row, first_key + step * BN, sequence, thread);
                softmax.add<Element>(score[0], p, factor);
                v_ring.wait_until_full(v_at);
            };
            start_scores();
            turns.end();
            results.release(lane);
            wgmma_wait_all(score);
            exponentiate(0);
            for (int step = 1; step < steps; ++step) {
                start_scores();
                wgmma_output(output, p, shared.v[v_at.stage], step > 1);
                wgmma_commit();
                turns.end();
                wgmma_wait_all(output);
                fence_registers(score[0]);
                fence_registers(p);
                v_ring.release(v_at, lane);
                v_at.advance();
                exponentiate(step);
                softmax.rescale(output[0], factor);
            }
            turns.begin();
            wgmma_fence();
            wgmma_output(output, p, shared.v[v_at.stage], steps > 1);
            wgmma_commit();
            turns.end(steps == work.steps && work.is_last);
            wgmma_wait_all(output);
            v_ring.release(v_at, lane);
            v_at.advance();
            for (int step = steps; Causal && step < work.steps; ++step) {  // beyond this consumer's diagonal
                turns.pass();
                k_ring.pass(at, lane);
                v_ring.pass(v_at, lane);
            }
            is_last = work.is_last;
            const int part = (blockIdx.x * consumers + consumer) * 4 + thread / 32;
            const int other = part - consumers * 4;  // of the block before this one
            if (!work.has_last) {
                leave_part(softmax, output[0], parts, flags, part, lane);
                continue;
            }
            if (!Causal && !work.has_first) add_part_by_fours(softmax, output[0], parts, flags, other, lane);
            softmax.divide(output[0]);
            auto mine = v_at;
            mine.advance(consumer);
            v_at.advance(consumers);
            results.store<Element>(shared.v, v_ring, mine, output, {map_o, work.head}, row, thread);
        }
        results.release(lane);
    }
}
