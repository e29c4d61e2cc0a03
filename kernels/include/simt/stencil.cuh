// What the stencils share: the mean of an output's inputs, and quads with the sums of windows over them.
#pragma once

#include "types/index.cuh"

// Mean of Taps values from their sum. int32 divides as C++ does, towards zero, and must be exact. fp32
// multiplies by the reciprocal, which rounds once more than a division. A division would take a dozen
// instructions and hide the difference between the kernels.
template <int Taps>
__device__ inline int mean(int sum) { return sum / Taps; }

template <int Taps>
__device__ inline float mean(float sum) { return sum * (1.0f / Taps); }

// Four elements of 4 bytes side by side, moved by one instruction except at the end of the line.
template <class T>
struct alignas(16) Quad {
    T word[4];
};

// Cache hint of a store: `streaming` means that the line is not read again soon.
enum class CacheHint { plain, streaming };

// Sum of the words from .. last, no order but that of their places.
template <class T>
__host__ __device__ constexpr T part(const Quad<T>& quad, int from, int last) {
    T sum = quad.word[from];
#pragma unroll
    for (int i = 1; i < 4; ++i) {
        if (i > from && i <= last) sum += quad.word[i];
    }
    return sum;
}

// Sums of the four windows of Halo + 1 words that begin in `own`.
// whole(m): sum of the quad m to the right; start(m, last): sum of its words 0 .. last.
template <int Halo, class T, class Whole, class Start>
__host__ __device__ constexpr Quad<T> four_windows(const Quad<T>& own, Whole whole, Start start) {
    T between = 0;  // quads that all windows contain
#pragma unroll
    for (int m = 1; m < Halo / 4; ++m) between = m == 1 ? whole(1) : between + whole(m);
    T wider = 0;  // and of one quad more: of the windows that end one quad further right
    if (Halo >= 4 && Halo % 4 != 0) wider = Halo / 4 > 1 ? between + whole(Halo / 4) : whole(1);
    Quad<T> sums = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int end = i + Halo, quad = end / 4;
        T sum = part(own, i, const_min(end, 3));
        if (quad > 1) sum += quad > Halo / 4 ? wider : between;
        if (quad > 0) sum += start(quad, end % 4);
        sums.word[i] = sum;
    }
    return sums;
}

// Words at .. at + 3 of a line of `elements`; words beyond its end are 0. `at` is a multiple of 4.
template <class T>
__device__ inline Quad<T> load_quad(const T* line, Index at, Index elements) {
    if (at + 4 <= elements) return *reinterpret_cast<const Quad<T>*>(line + at);
    Quad<T> quad = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (at + i < elements) quad.word[i] = line[at + i];
    }
    return quad;
}

// Count quads, `stride` words apart; one test for all of them where none is near the end.
template <int Count, class T>
__device__ inline void load_quads(Quad<T>* quads, const T* line, Index at, int stride, Index elements) {
    if (at + (Count - 1) * stride + 4 <= elements) {
#pragma unroll
        for (int i = 0; i < Count; ++i) quads[i] = *reinterpret_cast<const Quad<T>*>(line + at + i * stride);
        return;
    }
#pragma unroll
    for (int i = 0; i < Count; ++i) quads[i] = load_quad(line, at + i * stride, elements);
}

__device__ inline void store_streaming(int* to, const Quad<int>& quad) {
    __stcs(reinterpret_cast<int4*>(to), make_int4(quad.word[0], quad.word[1], quad.word[2], quad.word[3]));
}

__device__ inline void store_streaming(float* to, const Quad<float>& quad) {
    __stcs(reinterpret_cast<float4*>(to),
           make_float4(quad.word[0], quad.word[1], quad.word[2], quad.word[3]));
}

// Words of the quad that lie before `end` go to line[at ..]. `at` is a multiple of 4.
template <CacheHint Hint, class T>
__device__ inline void store_quad(T* line, Index at, Index end, const Quad<T>& quad) {
    if (at + 4 <= end) {
        if constexpr (Hint == CacheHint::streaming) {
            store_streaming(line + at, quad);
        } else {
            *reinterpret_cast<Quad<T>*>(line + at) = quad;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (at + i < end) line[at + i] = quad.word[i];
    }
}
