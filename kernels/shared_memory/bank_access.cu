// A warp reads or writes vectors in shared memory with a stride; some lanes may share a vector. The block
// counts the cycles.
//
// The techniques:
//   writes   instead of reads (bank-conflicts)
//   vectors  of 8 or 16 bytes, which the hardware serves by half- and quarter-warps (gemm-practice)
//   sharing  lanes that access the same vector
// Lane l accesses vector (l without the bits in SameBits, squeezed together) * Stride; pattern j starts j
// vectors further. With SameBits = 1 neighbours share a vector, with 16 the halves of the warp do; Stride = 0
// gives all lanes one. With SameBits = 6, bits 1 and 2, lanes 0, 2, 4 and 6 share vector 0, lanes 1, 3, 5 and
// 7 vector Stride, and lanes 8, 10, 12 and 14 vector 2 * Stride.
//
// Move: ReadVector or WriteVector. Words: of a vector. Stride: vectors between lanes that share none.
// SameBits: bits of the lane number that do not change the vector. Warps: of the block, enough to keep the
// shared-memory pipe busy.

#include "probe/bank_probe.cuh"

template <int Words>
using access_read = ReadVector<Words>;
template <int Words>
using access_write = WriteVector<Words>;

// The bits of the lane outside `same`, moved together: 0, 1, 2, ... over the lanes that differ in them.
__host__ __device__ constexpr int squeezed(int lane, int same) {
    int rank = 0;
    for (int bit = 0, next = 0; bit < 5; ++bit) {
        if ((same >> bit & 1) == 0) rank |= (lane >> bit & 1) << next++;
    }
    return rank;
}

template <int Words, int Stride, int SameBits>
struct VectorAccess {
    static constexpr int words = Words * (squeezed(31, SameBits) * Stride + patterns);
    __host__ __device__ static constexpr int word(int lane, int pattern) {
        return Words * (squeezed(lane, SameBits) * Stride + pattern);
    }
};

template <class Move, int Stride, int SameBits, int Warps>
__global__ void __launch_bounds__(Warps * 32)
    bank_access(int* __restrict__ offsets, unsigned* __restrict__ sums, long long* __restrict__ cycles,
                int elements) {
    using Access = VectorAccess<Move::words, Stride, SameBits>;
    alignas(128) __shared__ unsigned memory[Access::words];
    probe_banks<Access, Move, Warps>(memory, offsets, sums, cycles, elements);
}
