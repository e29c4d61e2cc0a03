// Stream-K: which steps of K of which tiles a persistent block computes, so that no multiprocessor is idle in
// the last wave. Whole tiles take ceil(tiles / blocks) waves; where the tiles are no multiple of the
// blocks, the last wave is a full one for some blocks and an empty one for the others. Here the last wave
// and the one before it are cut along K: their steps, tile after tile, are divided evenly among all blocks.
//
// A block's share is as long as a tile at least, so that a tile has at most two blocks, neighbours. A block
// works through its share backwards. Its first tile is one that the next block finishes: it leaves its
// partial sums for that block. Its last tile was begun by the previous block, whose partial sums have been
// ready for a long time. A block waits for blocks of a lower number only, which started earlier: nobody waits
// for ever, however few blocks run at a time.
#pragma once

#include "types/index.cuh"

// `steps` steps of a tile, from step `first` on. None where a block is done.
struct TileSteps {
    int tile, first, steps;

    __host__ __device__ constexpr bool has_first_step() const { return first == 0; }
    __host__ __device__ constexpr bool has_last_step(int all) const { return first + steps == all; }
};

struct StreamK {
    int steps, blocks;  // of K, at least one; of the grid
    int whole;          // tiles that are not cut; the others are
    int share, longer;  // steps of the cut tiles for each block; as many blocks have one more

    __host__ __device__ constexpr StreamK(int tiles, int steps, int blocks)
        : steps(steps), blocks(blocks), whole(tiles), share(0), longer(0) {
        const int rest = tiles % blocks;
        if (tiles < blocks || rest == 0) return;
        whole -= blocks + rest;
        share = (blocks + rest) * steps / blocks;
        longer = (blocks + rest) * steps % blocks;
    }

    // Where a block's share of the cut tiles begins, in steps.
    __host__ __device__ constexpr int begin_of_share(int block) const {
        return share * block + const_min(block, longer);
    }

    // The last part of a block's share ahead of `end` that is one tile's.
    __host__ __device__ constexpr TileSteps last_part(int block, int end) const {
        const int begin = begin_of_share(block);
        if (end <= begin) return {0, 0, 0};
        const int tile = (end - 1) / steps, from = const_max(begin, tile * steps);
        return {whole + tile, from - tile * steps, end - from};
    }

    __host__ __device__ constexpr TileSteps first(int block) const {
        return block < whole ? TileSteps{block, 0, steps} : last_part(block, begin_of_share(block + 1));
    }

    // What comes after it; no steps where nothing does.
    __host__ __device__ constexpr TileSteps after(const TileSteps& work, int block) const {
        if (work.tile >= whole) return last_part(block, (work.tile - whole) * steps + work.first);
        const int tile = work.tile + blocks;
        return tile < whole ? TileSteps{tile, 0, steps} : last_part(block, begin_of_share(block + 1));
    }
};
