// The tiles of rows of attention, in the order in which blocks take them. Those of a causal head differ: a
// tile sees the more keys, the later its rows are.
//   LongestFirst  for a block each: short ones fill the multiprocessors at the end (flash-attention-3). But
//                 only among as many heads as the L2 holds keys of.
//   InPairs       for blocks that stay: one of the longest and one of the shortest after the other, so that
//                 all blocks have as much to do.
#pragma once

// Tiles of Rows rows in heads of `sequence` rows. A step is BN keys.
template <bool Causal, int Rows, int BN>
struct RowTiles {
    int sequence, heads;

    struct Tile {
        int head, row, steps;
    };

    __device__ constexpr int of_head() const { return (sequence + Rows - 1) / Rows; }
    __device__ constexpr int count() const { return heads * of_head(); }

    __device__ constexpr Tile tile(int head, int number) const {
        const int row = number * Rows, keys = Causal && row + Rows < sequence ? row + Rows : sequence;
        return {head, row, (keys + BN - 1) / BN};
    }
};

// Of causal heads with Depth elements of two bytes in a row.
template <int Rows, int BN, int Depth>
struct LongestFirst : RowTiles<true, Rows, BN> {
    // Heads whose tiles are taken in turns: their keys and values fill 32 MiB of the L2's 50 or 60.
    __device__ constexpr int together() const {
        const int fit = (32 << 20) / (4 * Depth) / this->sequence;
        return fit < 1 ? 1 : fit;
    }

    __device__ constexpr auto at(int index) const {
        const int group = together() * this->of_head();
        const int first = index / group * together(), within = index % group;
        const int members = this->heads - first < together() ? this->heads - first : together();
        return this->tile(first + within % members, this->of_head() - 1 - within / members);
    }
};

template <bool Causal, int Rows, int BN>
struct InPairs : RowTiles<Causal, Rows, BN> {
    static constexpr int taken = Causal ? 2 : 1;  // by a block, one after the other

    __device__ int first() const { return blockIdx.x * taken; }
    __device__ int after(int index) const {
        return ++index % taken == 0 ? index + (gridDim.x - 1) * taken : index;
    }

    __device__ constexpr auto at(int index) const {
        const int number = index % this->of_head(), half = number / 2;
        return this->tile(index / this->of_head(),
                          !Causal ? number : number % 2 == 1 ? half : this->of_head() - 1 - half);
    }
};
