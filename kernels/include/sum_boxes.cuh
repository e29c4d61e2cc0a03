// The way of a warp's sums into C by TMA: the warp writes 32 rows at a time to shared memory, as boxes of 128 bytes a
// row with 128-byte swizzle, and TMA stores them while the warp goes on. The boxes of a warp take 8 KiB; before a box
// is written again, the warp waits until TMA has read it. TMA does not store rows and columns outside C.
#pragma once

#include "chunk_layout.cuh"
#include "element.cuh"
#include "index.cuh"
#include "tma.cuh"

template <class Element, int WN>
struct alignas(1024) SumBoxes {
    using Layout = XorChunks<chunks_of_banks>;
    static constexpr int rows = 32, columns = Layout::pitch / sizeof(Element);  // of a box
    static constexpr int across = WN / columns, buffers = 2 / across;
    static_assert(WN % columns == 0 && 2 % across == 0, "whole boxes, one or two side by side");

    unsigned char box[buffers][across][rows * Layout::pitch];

    // c = alpha * sums + beta * c, from (row, column) on. `warp` hands out neighbours by for_each_run (mma_warp.cuh).
    template <int WM, class Warp>
    __device__ void store(const Warp& warp, const TensorMap& map, const Element* c, int m, int n, int row, int column,
                          int lane, float alpha, float beta) {
#pragma unroll
        for (int part = 0; part < WM / rows; ++part) {
            auto& buffer = box[part % buffers];
            if (lane == 0) wait_for_store_reads<buffers - 1>();
            __syncwarp();
#pragma unroll
            for (int block = 0; block < rows / 8; ++block) {
                warp.for_each_run(part * (rows / 8) + block, lane, [&](int at_row, int at_column, const float(&sum)[2]) {
                    const int box_row = 8 * block + at_row, chunk = at_column / per_chunk<Element>;
                    Neighbours<Element, 2> out{};
                    if (beta != 0.0f) {
                        const Index from_row = Index(row) + part * rows + box_row;
                        const int from_column = column + at_column;
                        if (from_row < m && from_column < n) out = load_neighbours<2>(c + from_row * n + from_column);
                    }
                    blend(out, sum, alpha, beta);
                    const int to = Layout::offset(box_row, chunk % chunks_of_banks) +
                                   at_column % per_chunk<Element> * int(sizeof(Element));
                    store_neighbours<2>(reinterpret_cast<Element*>(buffer[chunk / chunks_of_banks] + to), out);
                });
            }
            fence_async_proxy();
            __syncwarp();
            if (lane == 0) {
#pragma unroll
                for (int x = 0; x < across; ++x) tma_store(map, row + part * rows, column + x * columns, buffer[x]);
                commit_stores();
            }
        }
    }
};
