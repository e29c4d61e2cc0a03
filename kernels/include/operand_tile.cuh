// An operand's tile in shared memory, as the copy engine writes it and the tensor cores read it: 128 bytes of K deep, Extent
// rows of A or columns of B wide, made of boxes of 64 lines of 128 bytes with 128-byte swizzle. In a box the sixteen bytes
// c of line l lie at l * 128 + 16 * (c ^ l % 8), so that eight lines read at the same c lie in different banks.
//   Major::k   lines run along K: line l is row (column) l of the operand. A, and B stored as N x K.
//   Major::mn  lines run along N: line l is the l-th of K, and each box holds 64 columns. B stored as K x N.
#pragma once

#include "cluster.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

enum class Major { k, mn };

constexpr Major NN = Major::mn, TN = Major::k;  // the layouts of a product, by what they mean for B

constexpr int box_lines = 64, line_bytes = 128, box_bytes = box_lines * line_bytes;

// Where byte `byte` of line `line` of a box lies.
__host__ __device__ constexpr int swizzled(int line, int byte) { return line * line_bytes + (byte ^ line % 8 * 16); }

template <class Element, Major Order, int Extent>
struct alignas(1024) OperandTile {
    static_assert(Extent % box_lines == 0, "whole boxes");
    static_assert(Order == Major::k || sizeof(Element) == 2, "wgmma reads other than 16-bit elements along K only");
    static constexpr int depth = line_bytes / sizeof(Element);    // elements of K
    static constexpr int boxes = Extent / box_lines;
    static constexpr int product_depth = 32 / sizeof(Element);    // elements of K that one product consumes
    static constexpr int bytes = boxes * box_bytes;

    unsigned char box[boxes][box_bytes];

    // Starts the loads of the tile whose first element is `first` of M (N) and `k` of K. One thread. The blocks of the
    // cluster that want the same tile (a bit each in `sharers`) load a part each, and the engine writes it to all of them.
    template <int Sharers>
    __device__ void load(const TensorMap& map, int first, int k, Mbarrier& full, int part, unsigned sharers) {
        static_assert(boxes % Sharers == 0, "as many boxes for each sharer");
#pragma unroll
        for (int i = 0; i < boxes / Sharers; ++i) {
            const int at = part * (boxes / Sharers) + i;
            const int along = first + at * box_lines;
            const int row = Order == Major::k ? along : k, column = Order == Major::k ? k : along;
            if constexpr (Sharers == 1) {
                tma_load(box[at], map, row, column, full);
            } else {
                tma_load_multicast(box[at], map, row, column, full, sharers);
            }
        }
    }

    // The operand of the step-th product of a tile whose first box lies at `address`, a multiple of 1024.
    // Along K, eight lines are 1024 bytes on, and a step is 32 bytes within the lines. Along N, the next 64 columns are a
    // box on, eight lines of K are 1024 bytes on, and a step is product_depth lines.
    __host__ __device__ static constexpr unsigned long long descriptor_at(unsigned address, int step) {
        constexpr int eight_lines = 8 * line_bytes;
        return Order == Major::k
                   ? swizzled_descriptor(address + step * 32, 16, eight_lines)
                   : swizzled_descriptor(address + step * product_depth * line_bytes, box_bytes, eight_lines);
    }

    __device__ unsigned long long descriptor(int first_box, int step) const {
        return descriptor_at(shared_address(box[first_box]), step);
    }
};

// Starts the products of a tile of A, from box `first_box` on, with a tile of B: Blocks x 64 rows of sums. Where `add` is
// 0 the sums begin anew.
template <class Element, Major OrderB, int BM, int BN, int Blocks>
__device__ inline void multiply_tiles(float (&sum)[Blocks][BN / 2], const OperandTile<Element, Major::k, BM>& a,
                                      const OperandTile<Element, OrderB, BN>& b, int first_box, int add) {
    constexpr int steps = line_bytes / 32;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int block = 0; block < Blocks; ++block) {
            Wgmma<Element, BN>::template multiply<OrderB == Major::mn>(
                sum[block], a.descriptor(first_box + block, step), b.descriptor(0, step), step > 0 ? 1 : add);
        }
    }
}
