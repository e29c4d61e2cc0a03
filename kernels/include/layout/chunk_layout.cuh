// Where the 16-byte chunks of a tile lie in shared memory, as policies. cp.async writes chunks and ldmatrix
// reads them, eight lanes at a time. Eight lanes take one wavefront where their chunks lie in eight different
// groups of four banks.
//   PaddedChunks  row after row, each Pad chunks further. An odd pitch puts the same chunk of eight rows into
//                 eight groups; costs Rows * Pad chunks.
//   XorChunks     the chunk is XORed with the row, within groups of eight (or the row, where it is narrower):
//                 a permutation that costs no memory and keeps writing along a row conflict-free. Rows that
//                 fill the banks together share one mask.
// Offsets are in bytes, from a tile that starts on 128 bytes. From a known
// offset you can move without its row: `across` moves by chunks (valid if the chunk number shares no bit with
// `chunks`), `below` by rows (valid if the row is less than the largest power of two that divides `rows`).
#pragma once

#include "types/index.cuh"

constexpr int chunk_bytes = 16;
constexpr int chunks_of_banks = 8;  // 32 banks of four bytes

template <int Chunks, int Pad>
struct PaddedChunks {
    static constexpr int pitch = (Chunks + Pad) * chunk_bytes;

    __host__ __device__ static constexpr int offset(int row, int chunk) {
        return row * pitch + chunk * chunk_bytes;
    }
    __host__ __device__ static constexpr int across(int offset, int chunks) {
        return offset + chunks * chunk_bytes;
    }
    __host__ __device__ static constexpr int below(int offset, int rows) { return offset + rows * pitch; }
};

template <int Chunks>
struct XorChunks {
    static_assert((Chunks & (Chunks - 1)) == 0, "XOR stays inside the row only for a power of two");
    static constexpr int pitch = Chunks * chunk_bytes;
    static constexpr int group = const_min(Chunks, chunks_of_banks);
    static constexpr int rows_of_banks = chunks_of_banks / group;

    __host__ __device__ static constexpr int mask(int row) { return row / rows_of_banks % group; }
    __host__ __device__ static constexpr int offset(int row, int chunk) {
        return row * pitch + (chunk ^ mask(row)) * chunk_bytes;
    }
    __host__ __device__ static constexpr int across(int offset, int chunks) {
        return (offset ^ chunks % group * chunk_bytes) + chunks / group * group * chunk_bytes;
    }
    __host__ __device__ static constexpr int below(int offset, int rows) {
        return (offset ^ mask(rows) * chunk_bytes) + rows * pitch;
    }
};

// Panels of eight chunks, one behind the other, each XOR-swizzled, in a tile that starts on 1024 bytes: as
// TMA writes them with its 128-byte swizzle.
template <int Rows>
struct PanelChunks {
    using Panel = XorChunks<chunks_of_banks>;
    static constexpr int panel = Rows * Panel::pitch;

    __host__ __device__ static constexpr int offset(int row, int chunk) {
        return chunk / chunks_of_banks * panel + Panel::offset(row, chunk % chunks_of_banks);
    }
    __host__ __device__ static constexpr int across(int offset, int chunks) {
        return Panel::across(offset, chunks % chunks_of_banks) + chunks / chunks_of_banks * panel;
    }
    __host__ __device__ static constexpr int below(int offset, int rows) {
        return Panel::below(offset, rows);
    }
};

// The policies as a kernel's parameter: of a row's chunks and the chunks of padding.
template <int Chunks, int Pad>
using swizzle_none = PaddedChunks<Chunks, Pad>;
template <int Chunks, int Pad>
using swizzle_xor = XorChunks<Chunks>;
