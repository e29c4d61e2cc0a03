// The tiles of rows of attention, in the order in which blocks take them. Those of a causal head differ: a
// tile sees the more keys, the later its rows are. The longest go first, so that short ones fill the
// multiprocessors at the end (flash-attention-3); but only among as many heads as the L2 holds keys of.
#pragma once

// For blocks that stay, which begin with the tile of their own number: the next of `tiles` that nobody has
// taken. A block asks until there is none, so that all ask as often together: `taken` is zero again.
__device__ inline int take_tile(unsigned* taken, int tiles) {
    unsigned before;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(taken), "r"(tiles - 1)
                 : "memory");
    return gridDim.x + before;
}

// Tiles of Rows rows in heads of `sequence` rows of Depth elements of two bytes. A step is BN keys.
template <bool Causal, int Rows, int BN, int Depth>
struct RowTiles {
    int sequence, heads;

    struct Tile {
        int head, row, steps;
    };

    // Heads whose tiles are taken in turns: their keys and values fill 32 MiB of the L2's 50 or 60, part of
    // which holds lines of the other half twice.
    __device__ constexpr int together() const {
        const int fit = (32 << 20) / (4 * Depth) / sequence;
        return !Causal || fit < 1 ? 1 : fit;
    }
    __device__ constexpr int of_head() const { return (sequence + Rows - 1) / Rows; }
    __device__ constexpr int count() const { return heads * of_head(); }

    __device__ constexpr Tile at(int index) const {
        const int group = together() * of_head(), first = index / group * together(), within = index % group;
        const int members = heads - first < together() ? heads - first : together();
        const int row = (of_head() - 1 - within / members) * Rows;
        const int keys = Causal && row + Rows < sequence ? row + Rows : sequence;
        return {first + within % members, row, (keys + BN - 1) / BN};
    }

    __device__ int next(unsigned* taken) const { return take_tile(taken, count()); }
};
