// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 9 of attention in docs/ladders/attention.md: no maxima.
//
// The technique: epilogue/trusting_softmax.cuh. In rung 8 a tile's exponentials wait for its maximum, and
// special functions stand idle. Here they take the old maximum, and the sum shows where that falls far short.
// Weights are packed as they come, into the registers that P @ V reads. So a consumer waits for its P @ V
// ahead of the next softmax, not behind it as in rung 6, and overlaps with the others alone. The registers
// that this frees allow more of them: three of 80 keys with rows of 128 elements, three of 128 keys or four
// of 64 with rows of 64. With a mask each consumer stops behind its own diagonal, and then only releases what
// the others need, so that more of them do not mean more masked tiles. Without a mask the last tiles are cut
// along the keys (schedule/stream_k.cuh).
//
// Predicted: 1.04 to 1.15 times as fast as rung 8 with 8192 keys of 64 elements.
//
// Element: __nv_bfloat16 or __half. Depth: 64 or 128 elements of a row. Causal: row i sees keys up to i. BN:
// keys of a tile. Stages: tiles in each ring. Consumers: 2, 3 or 4. taken, flags: zeros. parts: what blocks
// leave.

#include "epilogue/softmax_parts.cuh"
#include "epilogue/trusting_softmax.cuh"
#include "schedule/ring.cuh"
#include "schedule/row_work.cuh"
#include "schedule/store_tiles.cuh"
#include "schedule/turns.cuh"

template <class Element, int Depth, int BN, int Stages, int Consumers>
struct Shared {
    RowTile<Element, Consumers * 64, Depth> q[2];
    RowTile<Element, BN, Depth> k[Stages];
    ValueTile<Element, BN, Depth> v[Stages];
    RowWork work[2];      // with the rows in Q
    Mbarrier written[2];  // set when results have replaced them, or have been left
    RingBarriers<2> q_ring;
    RingBarriers<Stages> k_ring, v_ring;
};

template <class Element, int Depth, bool Causal, int BN, int Stages, int Consumers>
__global__ void __launch_bounds__((Consumers + 1) * warpgroup_threads, 1)
attention_no_maxima(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                    const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_o,
                    unsigned* taken, unsigned* flags, float* parts, int sequence, int heads) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth, BN, Stages, Consumers>*>(memory);
    auto& q_ring = shared.q_ring;
    auto &k_ring = shared.k_ring, &v_ring = shared.v_ring;
    const int warpgroup = warp_uniform(threadIdx.x / warpgroup_threads);
    const int thread = threadIdx.x % warpgroup_threads, lane = thread % 32;
    if (threadIdx.x == 0) {
        for (auto& one : shared.written) mbarrier_init(one, Consumers * 4);
        q_ring.init(1 + Consumers * warpgroup_threads);  // the storing thread, and all that read `work`
        k_ring.init(Consumers * 4);  // a release per warp of the consumers
        v_ring.init(Consumers * 4);
    }
    __syncthreads();

    RingPosition<2> q_at;
    RingPosition<Stages> at;  // in the rings of K and V
    if (warpgroup == 0) {  // the producer
        shrink_registers<producer_registers<Consumers>>();
        if (one_of_warpgroup(thread)) {
            RowWorks<Causal, Consumers * 64, BN, Depth> works(sequence, heads, taken);
            for (bool is_last = false; !is_last; q_at.advance()) {
                const RowWork work = works.work();
                q_ring.wait_until_empty(q_at);
                shared.work[q_at.stage] = work;
                q_ring.load(shared.q, q_at, MatrixOfMap{map_q, work.head}, work.row);
                for (int step = 0; step < work.steps; ++step, at.advance()) {
                    if (step + 1 == work.steps) {  // as late as that, so that blocks end together
                        is_last = !works.take();
                        shared.work[q_at.stage].is_last = is_last;
                    }
                    const int first_key = work.first_key + step * BN;
                    k_ring.load(shared.k, at, MatrixOfMap{map_k, work.head}, first_key);
                    v_ring.load(shared.v, at, MatrixOfMap{map_v, work.head}, first_key);
                }
            }
        } else if (thread / 32 == 1 && one_of_warpgroup(thread % 32)) {
            store_tiles(shared, map_o);
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
        for (bool is_last = false; !is_last; q_at.advance()) {
            q_ring.wait_until_full(q_at);
            const RowWork& work = shared.work[q_at.stage];
            const int row = work.row + tile_row, first_key = work.first_key;
            const int steps = Causal ? const_min(work.steps, ceil_div(row + 64, BN)) : work.steps;
            TrustingSoftmax softmax(Depth);
            const auto exponentiate = [&](int step) {
                k_ring.release(at, lane);
                at.advance();
                mask_scores<Causal>(score[0], row, first_key + step * BN, sequence, thread);
                softmax.add<Element>(score[0], p, factor);
                v_ring.wait_until_full(v_at);
            };
            start_scores();
            turns.end();
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
            auto& written = shared.written[q_at.stage];
            const int part = (blockIdx.x * Consumers + consumer) * 4 + thread / 32;
            const int other = part - Consumers * 4;  // of the block before this one
            if (work.has_last) {
                if (!Causal && !work.has_first) {
                    add_part_by_fours(softmax, output[0], parts, flags, other, lane);
                }
                softmax.divide(output[0]);
                write_rows(shared.q[q_at.stage], output, tile_row, thread, written);
            } else {
                leave_part(softmax, output[0], parts, flags, part, lane);
                if (lane == 0) mbarrier_arrive(written);
            }
            for (int step = steps; Causal && step < work.steps; ++step) {  // behind this consumer's diagonal
                turns.pass();
                k_ring.pass(at, lane);
                v_ring.pass(v_at, lane);
            }
            is_last = work.is_last;
            mbarrier_arrive(q_ring.empty[q_at.stage]);
        }
    }
}
