// Four neighbouring 4-byte elements of a line, moved by one instruction except at the end of the line, and sums of them.
#pragma once

#include "index.cuh"

template <class T>
struct alignas(16) Quad {
    T word[4];
};

// How a store treats the caches: `streaming` says that nobody reads the line soon.
enum class Hint { plain, streaming };

// Sum of the words from .. last, no order but that of their places.
template <class T>
__device__ inline T part(const Quad<T>& quad, int from, int last) {
    T sum = quad.word[from];
#pragma unroll
    for (int i = 1; i < 4; ++i) {
        if (i > from && i <= last) sum += quad.word[i];
    }
    return sum;
}

// Words at .. at + 3 of a line of `elements`; words behind its end are 0. `at` is a multiple of 4.
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

// Count quads, `stride` words apart; one question for all of them where none is near the end.
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
    __stcs(reinterpret_cast<float4*>(to), make_float4(quad.word[0], quad.word[1], quad.word[2], quad.word[3]));
}

// Words of the quad that lie before `end` go to line[at ..]. `at` is a multiple of 4.
template <Hint How, class T>
__device__ inline void store_quad(T* line, Index at, Index end, const Quad<T>& quad) {
    if (at + 4 <= end) {
        if constexpr (How == Hint::streaming) {
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
