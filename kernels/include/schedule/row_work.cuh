// What a block of attention that stays does, one after the other: rows of Q, and all of their keys or a part.
// With a causal mask these are tiles of rows in the order of row_tiles.cuh; without, the last ones are cut
// along the keys, so that blocks end together (stream_k.cuh). No grid has more blocks than there are tiles.
#pragma once

#include "schedule/row_tiles.cuh"
#include "schedule/stream_k.cuh"

struct RowWork {
    int head, row, first_key, steps;
    int has_first, has_last;  // key of its rows
    int is_last;              // of the block: known when the last of its keys are copied
};

template <bool Causal, int Rows, int BN, int Depth>
struct RowWorks {
    RowTiles<Causal, Rows, BN, Depth> order;
    StreamK cut;
    unsigned* taken;
    TileSteps part;  // of a tile: what is to be done
    int end;         // of the block's share of cut tiles, behind what is left

    __device__ RowWorks(int sequence, int heads, unsigned* taken)
        : order{sequence, heads},
          cut(order.count(), ceil_div(sequence, BN), Causal ? 1 : gridDim.x),  // for one block nothing is cut
          taken(taken),
          part{int(blockIdx.x), 0, cut.steps},
          end(cut.begin_of_share(blockIdx.x + 1)) {
        if (part.tile >= cut.whole) take_part();
    }

    __device__ RowWork work() const {
        const auto tile = order.at(part.tile);
        return {tile.head, tile.row, part.first * BN, Causal ? tile.steps : part.steps, part.has_first_step(),
                part.has_last_step(cut.steps), 0};
    }

    // Goes on to the next. Where there is none it returns false. To be called as late as possible: a tile
    // that waits for a busy block is one that no other block takes.
    __device__ bool take() {
        if (part.tile < cut.whole) part.tile = take_tile(taken, cut.whole);
        if (part.tile >= cut.whole) take_part();
        return part.steps > 0;
    }

    __device__ void take_part() {
        part = cut.last_part(blockIdx.x, end);
        end -= part.steps;
        if (part.steps == 0) part.tile = cut.whole;  // none from now on
    }
};
