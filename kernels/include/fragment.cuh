// Shared memory -> registers: the values of one K step that a thread multiplies. `Along` is the thread's Edge.
#pragma once

#include "index.cuh"
#include "neighbours.cuh"

// Along a row of the tile, in accesses as wide as the layout's alignment allows: up to LDS.128.
// `origin`: where the thread's first value of row 0 lies.
template <class Layout, class Along, int Count>
__device__ inline void load_along_row(float (&fragment)[Count], const float* tile, const float* origin, int row, int thread) {
    constexpr int width = lesser(Layout::alignment, Along::group);
    const float* first = Layout::rows_alike ? origin + row * Layout::pitch : Layout::at(tile, row, Along::first(thread));
#pragma unroll
    for (int i = 0; i < Count; i += width) {
        const Neighbours<float, width> read = load_neighbours<width>(first + Layout::step_words(Along::step(i)));
#pragma unroll
        for (int w = 0; w < width; ++w) fragment[i + w] = read.value[w];
    }
}

// Down a column: the values lie a row apart, so one LDS.32 each. Volatile, because the compiler would otherwise load
// four K steps of each row by one LDS.128, which takes four columns of registers.
template <class Layout, class Along, int Count>
__device__ inline void load_down_column(float (&fragment)[Count], const float* tile, int column, int thread) {
    const volatile float* words = tile;
#pragma unroll
    for (int i = 0; i < Count; ++i) fragment[i] = *Layout::at(words, Along::position(thread, i), column);
}
