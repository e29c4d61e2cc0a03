// An operand's tile in shared memory, as TMA writes it and the tensor cores read it: 128 bytes of K deep,
// Extent rows of A or columns of B wide, in lines of 128 bytes with 128-byte swizzle. Chunk c (16 bytes) of
// line l lies at l * 128 + 16 * (c ^ l % 8), so that chunk c of eight lines lies in different banks.
//   Major::k   lines run along K: line l is row (column) l of the operand. A, and B stored as N x K.
//   Major::mn  lines run along N: a box holds 64 columns, its line l the l-th of K. B stored as K x N.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

enum class Major { k, mn };

// The layouts of a GEMM, by what they mean for B.
constexpr Major layout_NN = Major::mn, layout_TN = Major::k;

constexpr int line_bytes = 128;

// Where byte `byte` of line `line` lies, in lines of Bytes with a swizzle as wide: it repeats every Bytes /
// 16 times 128.
template <int Bytes = line_bytes>
__host__ __device__ constexpr int swizzled(int line, int byte) {
    return line * Bytes + (byte ^ line * Bytes / 128 % (Bytes / 16) * 16);
}

template <class Element, Major Direction, int Extent>
struct alignas(1024) OperandTile {
    static_assert(Direction == Major::k || sizeof(Element) == 2,
                  "wgmma reads other than 16-bit elements along K only");
    static constexpr int depth = line_bytes / sizeof(Element);    // elements of K
    static constexpr int wgmma_depth = 32 / sizeof(Element);    // elements of K that one wgmma consumes
    static constexpr int bytes = Extent * line_bytes;
    static constexpr int box_columns = 64;                        // of Major::mn

    unsigned char byte[bytes];

    // Starts the loads of the tile whose first element is `first` of M (N) and `k` of K. Called by one
    // thread. The blocks of the cluster that share the tile (a bit each in `sharers`) load a part each, and
    // TMA writes it to all of them. Map: TensorMap or MatrixOfMap.
    template <int Sharers, Evict Policy = Evict::normal, class Map>
    __device__ void load(const Map& map, int first, int k, Mbarrier& full, int part, unsigned sharers) {
        constexpr int share = Extent / Sharers;
        constexpr int box = Direction == Major::mn ? box_columns : share <= 256 ? share : share / 2;
        static_assert(share % box == 0 && box % 8 == 0 && box <= 256,
                      "a sharer's box of TMA is whole, and begins where the swizzle does");
#pragma unroll
        for (int i = 0; i < share; i += box) {
            const int at = part * share + i, along = first + at;
            const int row = Direction == Major::k ? along : k, column = Direction == Major::k ? k : along;
            if constexpr (Sharers == 1) {
                tma_load<Policy>(byte + at * line_bytes, map, row, column, full);
            } else {
                tma_load_multicast<Policy>(byte + at * line_bytes, map, row, column, full, sharers);
            }
        }
    }

    // The same of a tile that no other block needs.
    template <class Map>
    __device__ void load(const Map& map, int first, int k, Mbarrier& full) {
        load<1>(map, first, k, full, 0, 1);
    }

    // The descriptor for the first wgmma of a tile whose first line lies at `address`, a multiple of 1024.
    // Along K, eight lines are 1024 bytes on; along N, the next 64 columns are a box on, and eight lines of K
    // 1024 bytes.
    __host__ __device__ static constexpr unsigned long long descriptor_at(unsigned address) {
        constexpr int eight_lines = 8 * line_bytes;
        return Direction == Major::k ? swizzled_descriptor(address, 16, eight_lines)
                                 : swizzled_descriptor(address, box_columns * line_bytes, eight_lines);
    }

    __device__ unsigned long long descriptor(int first_line) const {
        return descriptor_at(shared_address(byte + first_line * line_bytes));
    }

    // The descriptor for wgmma number `step`: 32 bytes further within the lines, or wgmma_depth lines
    // further.
    __host__ __device__ static constexpr unsigned long long at_step(unsigned long long descriptor, int step) {
        return moved(descriptor, step * (Direction == Major::k ? 32 : wgmma_depth * line_bytes));
    }
};

// Starts the wgmma of a tile of A, from line `row` on, and a tile of B, from `column` on: Fragments x 64 rows
// of 2 * Registers columns of accumulators. Where `add` is 0 they begin at zero.
template <class Element, Major MajorB, int BM, int BN, int Fragments, int Registers>
__device__ inline void wgmma_tiles(float (&accumulator)[Fragments][Registers],
                                   const OperandTile<Element, Major::k, BM>& a,
                                   const OperandTile<Element, MajorB, BN>& b, int row, int column, int add) {
    constexpr int steps = line_bytes / 32;
    const unsigned long long first_a = a.descriptor(row), first_b = b.descriptor(column);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int fragment = 0; fragment < Fragments; ++fragment) {
            const unsigned long long fragment_a = moved(a.at_step(first_a, step), fragment * 64 * line_bytes);
            Wgmma<Element, 2 * Registers>::template wgmma<MajorB == Major::mn>(
                accumulator[fragment], fragment_a, b.at_step(first_b, step), step > 0 ? 1 : add);
        }
    }
}
