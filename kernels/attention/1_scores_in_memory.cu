// O = softmax(Q @ K^T / sqrt(Depth)) @ V of each head, 16-bit operands and result, fp32 accumulators.
// Rung 1 of attention in docs/ladders/attention.md: scores in global memory.
//
// The technique: none yet. A block takes one tile of 64 rows after the other, and each goes through three
// phases with what is in this project already: S = Q @ K^T / sqrt(Depth) as in hopper/1_tma_wgmma.cu, the
// softmax of its rows with the online normalizer (milakov-softmax), a warp a row, and O = P @ V as in the
// first phase. S in fp32 and P in 16 bits, 64 rows of all keys, lie in a workspace of the block in global
// memory in between.
//
// Predicted: 60 to 120 TFLOP/s on an H200 at a depth of 128. A score is written once and read twice, a weight
// P written and read: 16 bytes for 512 operations, most of them from memory where the workspaces of all
// blocks are larger than the L2. No phase of a block overlaps another one; four blocks on a multiprocessor
// do.
//
// Element: __nv_bfloat16 or __half. Depth: 64 or 128 elements of a row. Causal: row i sees keys up to i.

#include "epilogue/online_softmax.cuh"
#include "epilogue/warpgroup_store.cuh"
#include "mma/attention_tiles.cuh"
#include "simt/normalizer.cuh"

constexpr int tile = 64;  // rows of Q of a block, and keys of a step

template <class Element, int Depth>
struct Shared {
    RowTile<Element, tile, Depth> q;
    union {  // one after the other
        RowTile<Element, tile, Depth> k;
        ValueTile<Element, tile, Depth> v;
    };
    RowTile<Element, tile, tile> p;
    Mbarrier full;
};

// weight = exp(score) / sum of it over the keys that are seen, and 0 for the others. One warp.
template <class Element>
__device__ inline void softmax_row(const float* score, Element* weight, int seen, int keys, int lane) {
    Normalizer whole = Normalizer::of_none();
    for (int key = lane; key < seen; key += 32) whole.add(Normalizer{score[key], 1.0f});
    whole = over_warp(whole);
    const float inverse = 1.0f / whole.sum;
    for (int key = lane; key < keys; key += 32) {
        weight[key] = from_float<Element>(key < seen ? __expf(score[key] - whole.maximum) * inverse : 0.0f);
    }
}

template <class Element, int Depth, bool Causal>
__global__ void __launch_bounds__(warpgroup_threads, 1)
attention_scores_in_memory(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                           const __grid_constant__ TensorMap map_v, Element* o, float* scores,
                           Element* weights, int heads, int sequence) {
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, Depth>*>(memory);
    const int thread = threadIdx.x, tiles = ceil_div(sequence, tile), keys = tiles * tile;
    scores += Index(blockIdx.x) * tile * keys;  // the block's workspaces: 64 rows
    weights += Index(blockIdx.x) * tile * keys;
    if (thread == 0) {
        mbarrier_init(shared.full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    unsigned parity = 0;
    for (int number = blockIdx.x; number < heads * tiles; number += gridDim.x) {
        const int head = number / tiles, first_row = number % tiles * tile;
        float score[1][tile / 2], output[1][Depth / 2];  // 64 rows over 128 threads
        for (int first_key = 0; first_key < keys; first_key += tile, parity ^= 1) {  // S
            if (thread == 0) {
                mbarrier_arrive_expect(shared.full, (first_key == 0 ? shared.q.bytes : 0) + shared.k.bytes);
                if (first_key == 0) shared.q.load({map_q, head}, first_row, shared.full);
                shared.k.load({map_k, head}, first_key, shared.full);
            }
            mbarrier_wait(shared.full, parity);
            wgmma_fence();
            wgmma_scores(score, shared.q, 0, shared.k);
            wgmma_commit();
            wgmma_wait_all(score);
            const MatrixC<float> result{scores, tile, keys, 1.0f / sqrtf(Depth), 0.0f};
            combine_accumulators(score, result, 0, first_key, thread);
            store_direct(score, result, 0, first_key, thread);
            __syncthreads();  // all wgmma have read the tiles
        }

        for (int row = thread / 32; row < tile; row += warpgroup_threads / 32) {  // P
            const int seen = keys_seen<Causal>(first_row + row, sequence);
            softmax_row(scores + Index(row) * keys, weights + Index(row) * keys, seen, keys, thread % 32);
        }
        __syncthreads();  // P is written

        clear(output);
        for (int first_key = 0; first_key < keys; first_key += tile, parity ^= 1) {  // O
            if (thread == 0) {
                mbarrier_arrive_expect(shared.full, shared.v.bytes);
                shared.v.load({map_v, head}, first_key, shared.full);
            }
            for (int chunk = thread; chunk < tile * 8; chunk += warpgroup_threads) {  // of eight weights
                const int row = chunk / 8, column = chunk % 8 * 8;
                const auto eight = load_vector<8>(weights + Index(row) * keys + first_key + column);
                auto* to = shared.p.panel[0].byte + swizzled(row, 2 * column);
                store_vector<8>(reinterpret_cast<Element*>(to), eight);
            }
            fence_async_proxy();  // shows the thread's part of P to wgmma
            __syncthreads();  // P is in shared memory
            mbarrier_wait(shared.full, parity);
            wgmma_fence();
            wgmma_output(output, shared.p, shared.v);
            wgmma_commit();
            wgmma_wait_all(output);
            __syncthreads();  // all wgmma have read the tiles
        }
        const MatrixC<Element> result{o + Index(head) * sequence * Depth, sequence, Depth, 1.0f, 0.0f};
        store_direct(output, result, first_row, 0, thread);
    }
}
