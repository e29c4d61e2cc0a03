// The transpose of a tile of V in e4m3, which wgmma reads along the keys: by three warps that have nothing
// else to do, from shared memory to shared memory (flash-attention-3). ldmatrix.trans transposes pairs of
// bytes, byte permutations bring the bytes of a column together, and stmatrix stores lines of keys. A sum
// over keys does not care about their order: they are stored in the one in which the accumulators of S hold
// them, so that no weight moves to another thread.
#pragma once

#include "mma/attention_tiles.cuh"
#include "ptx/shared_memory.cuh"

constexpr int transposing_warps = 3;

template <int Depth, int BN>
using TransposedTile = RowTile<E4m3, Depth, (BN + 127) / 128 * 128>;  // V: of its last keys a panel's part

// A warp takes 32 keys of 64 columns at a time: four ldmatrix, of 16 columns each, are under way together.
// Word i of a lane: bytes 2 * (lane / 4) and the next of keys 8i + 2 * (lane % 4) and the next. Half of the
// lanes store their odd column first, so that eight lines lie in different banks. A lane's lines are
// multiples of eight apart, where the swizzle is the same: it and columns, or keys, are joined by exclusive
// or.
template <int Depth, int BN>
__device__ inline void transpose(const RowTile<E4m3, BN, Depth>& v, TransposedTile<Depth, BN>& to,
                                 unsigned warp, int lane) {
    const unsigned even = 0x6420, odd = 0x7531, first = lane < 16 ? even : odd, second = first ^ even ^ odd;
    const int row = lane % 8, line = 2 * row + (row / 4 ^ lane / 8 % 2), byte = lane / 16 * 16;
    const unsigned from = shared_address(v.panel[0].byte) + swizzled(lane, 0), into = swizzled(line, byte);
    constexpr unsigned columns = 64, of_keys = Depth / columns;  // parts
    unsigned word[columns / 16][4], stored[4];
#pragma unroll 1
    for (unsigned part = warp; part < BN / 32 * of_keys; part += transposing_warps) {
        const unsigned keys = part / of_keys * 32, column = part % of_keys * columns;
#pragma unroll
        for (int i = 0; i < columns / 16; ++i) {
            ldmatrix_trans((from + keys * line_bytes) ^ (column + 16 * i), word[i]);
        }
        fence_registers(word);  // else the compiler waits for the first ahead of the others
        unsigned char* const panel = to.panel[keys / 128].byte + column * line_bytes + (into ^ keys % 128);
#pragma unroll
        for (int i = 0; i < columns / 16; ++i) {
#pragma unroll
            for (int pair = 0; pair < 4; pair += 2) {
                stored[pair] = __byte_perm(word[i][pair], word[i][pair + 1], first);
                stored[pair + 1] = __byte_perm(word[i][pair], word[i][pair + 1], second);
            }
            stmatrix(panel + 16 * i * line_bytes, stored);
        }
    }
}
