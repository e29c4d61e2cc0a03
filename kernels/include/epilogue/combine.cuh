// The epilogue of a GEMM on tensor cores, C = alpha * accumulator + beta * C, for vectors of C in its own
// type.
#pragma once

#include "types/element.cuh"
#include "types/vector.cuh"

// How the accumulators reach C.
//   direct      straight from the registers.
//   fragment    through shared memory, a fragment of 16 columns at a time.
//   collective  through shared memory, whole lines of the warp tile at a time.
//   staged      through shared memory, from where TMA stores them.
enum class StoreMethod { direct, fragment, collective, staged };

// A vector in registers. As in BLAS, beta == 0 means that c counts for nothing, NaN included.
template <int Count, class Element>
__device__ inline void combine(Vector<Element, Count>& c, const float (&accumulator)[Count], float alpha,
                               float beta) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        const float before = beta != 0.0f ? beta * to_float(c.value[i]) : 0.0f;
        c.value[i] = from_float<Element>(alpha * accumulator[i] + before);
    }
}

// The same in memory, which is not read where beta == 0.
template <int Count, class Element>
__device__ inline void store_combined(Element* c, const float (&accumulator)[Count], float alpha,
                                      float beta) {
    Vector<Element, Count> out{};
    if (beta != 0.0f) out = load_vector<Count>(c);
    combine(out, accumulator, alpha, beta);
    store_vector<Count>(c, out);
}
