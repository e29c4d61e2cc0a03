// A product of fp32 by three of TF32 (split_tf32.cuh), of Count wgmma with 8 of K each: A is split in
// registers, B's low part lies in shared memory beside B. The small products go first, while the sum that the
// tensor cores cut is small.
#pragma once

#include "mma/split_tf32.cuh"
#include "mma/wgmma_registers.cuh"

template <int Count>
struct SplitFragments {
    unsigned high[Count][4], low[Count][4];

    // Of wgmma number `first` of a tile and the next ones, for its 64 rows from `row` on.
    template <int BM>
    __device__ void load(const OperandTile<Tf32, Major::k, BM>& a, int row, int first, int thread) {
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            unsigned word[4];
            load_fragment(a, row, first + i, thread, word);
#pragma unroll
            for (int w = 0; w < 4; ++w) split_rounded(word[w], high[i][w], low[i][w]);
        }
    }

    // Starts d = A @ B.
    template <int BN>
    __device__ void multiply(float (&d)[BN / 2], const OperandTile<Tf32, Major::k, BN>& b,
                             const OperandTile<Tf32, Major::k, BN>& b_low, int first) const {
        const auto first_b = b.descriptor(0), first_low = b_low.descriptor(0);
#pragma unroll
        for (int i = 0; i < 3 * Count; ++i) {
            const int product = i / Count, j = i % Count;
            const auto of_b = b.at_step(product == 1 ? first_low : first_b, first + j);
            WgmmaRegisters<Tf32, BN>::wgmma<false>(d, product == 0 ? low[j] : high[j], of_b, i > 0);
        }
    }
};

// sum += part, after the wait for the wgmma that write `part`.
template <int Registers>
__device__ inline void add_finished(float (&sum)[Registers], float (&part)[Registers]) {
    fence_registers(part);
#pragma unroll
    for (int i = 0; i < Registers; ++i) sum[i] += part[i];
}
