// The epilogue of a warp by TMA: the warp writes 32 rows of C at a time to a buffer in shared memory, in
// lines of 128 bytes with 128-byte swizzle, and TMA stores them while the warp goes on. The buffers of a warp
// take 8 KiB; before one is written again, the warp waits until TMA has read it. TMA does not store rows and
// columns outside C.
#pragma once

#include "epilogue/combine.cuh"
#include "layout/chunk_layout.cuh"
#include "ptx/tma.cuh"
#include "types/index.cuh"

template <class Element, int WN>
struct alignas(1024) WarpTmaStore {
    using Layout = XorChunks<chunks_of_banks>;
    static constexpr int rows = 32, columns = Layout::pitch / sizeof(Element);  // of a TMA box
    static constexpr int across = WN / columns, buffers = 2 / across;
    static_assert(WN % columns == 0 && 2 % across == 0, "a box of TMA is whole, one or two side by side");

    unsigned char memory[buffers][across][rows * Layout::pitch];

    // C = alpha * accumulator + beta * C, from (row, column) on. `warp` hands out pairs by for_each_pair
    // (mma/mma_warp.cuh).
    template <int WM, class Warp>
    __device__ void store(const Warp& warp, const TensorMap& map, const Element* c, int m, int n, int row,
                          int column, int lane, float alpha, float beta) {
        // A store may be on its way only from another buffer: where each tile takes all buffers alike.
        constexpr int pending = WM / rows % buffers == 0 ? buffers - 1 : 0;
#pragma unroll
        for (int part = 0; part < WM / rows; ++part) {
            auto& buffer = memory[part % buffers];
            if (lane == 0) wait_for_store_reads<pending>();
            __syncwarp();
#pragma unroll
            for (int eight = 0; eight < rows / 8; ++eight) {
                warp.for_each_pair(
                    part * (rows / 8) + eight, lane,
                    [&](int at_row, int at_column, const float (&accumulator)[2]) {
                        const int box_row = 8 * eight + at_row, chunk = at_column / per_chunk<Element>;
                        Vector<Element, 2> out{};
                        if (beta != 0.0f) {
                            const Index from_row = Index(row) + part * rows + box_row;
                            const int from_column = column + at_column;
                            if (from_row < m && from_column < n) {
                                out = load_vector<2>(c + from_row * n + from_column);
                            }
                        }
                        combine(out, accumulator, alpha, beta);
                        const int to = Layout::offset(box_row, chunk % chunks_of_banks) +
                                       at_column % per_chunk<Element> * int(sizeof(Element));
                        store_vector<2>(reinterpret_cast<Element*>(buffer[chunk / chunks_of_banks] + to),
                                        out);
                    });
            }
            fence_async_proxy();
            __syncwarp();
            if (lane == 0) {
#pragma unroll
                for (int x = 0; x < across; ++x) {
                    tma_store(map, row + part * rows, column + x * columns, buffer[x]);
                }
                commit_stores();
            }
        }
    }
};
