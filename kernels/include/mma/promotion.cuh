// Promotion of partial sums (deepseek-v3, 3.3.2; cutlass). The tensor cores keep about 14 bits of a sum of
// fp8 products. So wgmma sums few products at a time, in registers of their own, and CUDA cores add these
// partial sums to the accumulators in full fp32.
//
// A warpgroup multiplies its tile in parts, each 64 rows and some of the columns. Thus partial sums take few
// registers, and one part can be added while the tensor cores multiply another.
#pragma once

#include "ptx/wgmma.cuh"

// Adds the partial sums of part number `part` to its accumulators, after wgmma_wait. The compiler must know
// `part`, since registers have no index.
template <int Fragments, int Registers, int Partial>
__device__ inline void promote(float (&accumulator)[Fragments][Registers], int part,
                               float (&partial)[1][Partial]) {
    constexpr int split = Registers / Partial;
    fence_registers(partial[0]);
#pragma unroll
    for (int i = 0; i < Partial; ++i) accumulator[part / split][part % split * Partial + i] += partial[0][i];
}
