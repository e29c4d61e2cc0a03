// The operands of attention in shared memory, as TMA writes them and wgmma reads them, and its two products.
// A swizzled line has 128 bytes, 64 elements of 16 bits or 128 of 8: a tile of more is several panels.
//   RowTile    Q, K, P and V^T: a panel has all rows, and a line of each. wgmma multiplies along the rows.
//   ValueTile  V: a panel has 64 keys; where keys are no multiple of 64, it has all keys and a line of each.
//              wgmma multiplies along the keys, so that V is read transposed: its rows are lines of N, as
//              those of B in a GEMM of layout NN.
#pragma once

#include "mma/wgmma_registers.cuh"

template <class Element, int Rows, int Columns>
struct RowTile {
    using Panel = OperandTile<Element, Major::k, Rows>;
    static constexpr int bytes = Rows * Columns * sizeof(Element);
    Panel panel[Columns / Panel::depth];

    // Starts the loads of Rows rows of a matrix. One thread.
    __device__ void load(const MatrixOfMap& from, int first_row, Mbarrier& full) {
#pragma unroll
        for (int i = 0; i < Columns / Panel::depth; ++i) {
            panel[i].load(from, first_row, Panel::depth * i, full);
        }
    }
};

template <class Element, int Keys, int Depth, bool WholePanels = Keys % 64 == 0>
struct ValueTile {
    static constexpr int bytes = Keys * Depth * sizeof(Element);
    OperandTile<Element, Major::mn, Depth> panel[Keys / 64];

    // Starts the loads of Keys rows of a matrix. One thread.
    __device__ void load(const MatrixOfMap& from, int first_key, Mbarrier& full) {
#pragma unroll
        for (int i = 0; i < Keys / 64; ++i) panel[i].load(from, 0, first_key + 64 * i, full);
    }

    // The descriptor of 16 keys, the `step`-th.
    __device__ unsigned long long descriptor(int step) const {
        const auto& keys = panel[step / 4];
        return keys.at_step(keys.descriptor(0), step % 4);
    }
};

template <class Element, int Keys, int Depth>
struct alignas(1024) ValueTile<Element, Keys, Depth, false> {
    static_assert(Keys % 16 == 0, "a wgmma multiplies 16 keys");
    static constexpr int bytes = Keys * Depth * sizeof(Element);
    unsigned char panel[Depth / 64][Keys * line_bytes];

    __device__ void load(const MatrixOfMap& from, int first_key, Mbarrier& full) {
#pragma unroll
        for (int i = 0; i < Depth / 64; ++i) tma_load(panel[i], from, first_key, 64 * i, full);
    }

    __device__ unsigned long long descriptor(int step) const {
        constexpr int eight_lines = 8 * line_bytes;
        return moved(swizzled_descriptor(shared_address(panel), Keys * line_bytes, eight_lines),
                     step * 2 * eight_lines);
    }
};

// Starts S = Q @ K^T for the 64 rows of Q from `row` on.
template <class Element, int Rows, int Keys, int Depth>
__device__ inline void wgmma_scores(float (&score)[1][Keys / 2], const RowTile<Element, Rows, Depth>& q,
                                    int row, const RowTile<Element, Keys, Depth>& k) {
#pragma unroll
    for (int i = 0; i < Depth / k.panel[0].depth; ++i) {
        wgmma_tiles(score, q.panel[i], k.panel[i], row, 0, i > 0);
    }
}

// Starts O += P @ V, with P in shared memory.
template <class Element, int Keys, int Depth>
__device__ inline void wgmma_output(float (&output)[1][Depth / 2], const RowTile<Element, 64, Keys>& p,
                                    const ValueTile<Element, Keys, Depth>& v) {
#pragma unroll
    for (int i = 0; i < Keys / 64; ++i) wgmma_tiles(output, p.panel[i], v.panel[i], 0, 0, 1);
}

// The same with P in registers: words of the accumulators that held S, packed. Where `add` is 0, O = P @ V.
template <class Element, int Keys, int Depth>
__device__ inline void wgmma_output(float (&output)[1][Depth / 2], const unsigned (&p)[Keys / 16][4],
                                    const ValueTile<Element, Keys, Depth>& v, int add = 1) {
#pragma unroll
    for (int step = 0; step < Keys / 16; ++step) {
        WgmmaRegisters<Element, Depth>::template wgmma<true>(output[0], p[step], v.descriptor(step),
                                                             step > 0 ? 1 : add);
    }
}

// The same of 8-bit elements, whose V is transposed: wgmma reads them along K only. A tile of V may have room
// for more keys than P has.
template <class Element, int Steps, int Depth, int Room>
__device__ inline void wgmma_output(float (&output)[1][Depth / 2], const unsigned (&p)[Steps][4],
                                    const RowTile<Element, Depth, Room>& v, int add = 0) {
    static_assert(Steps * 32 <= Room, "V has a key for each of P");
#pragma unroll
    for (int step = 0; step < Steps; ++step) {
        const auto& panel = v.panel[step / 4];
        WgmmaRegisters<Element, Depth>::template wgmma<false>(
            output[0], p[step], panel.at_step(panel.descriptor(0), step % 4), step > 0 ? 1 : add);
    }
}
