// A warp reads shared memory with a stride of Stride words; the block counts the cycles.
//
// The technique: strided access (bank-conflicts). Lane l reads word l * Stride, so gcd(Stride, 32) lanes meet
// in each bank that is read at all, and the access takes as many wavefronts. Pattern j starts j words
// further.
//
// Stride: words between neighbouring lanes. Warps: of the block, enough to keep the shared-memory pipe busy.

#include "probe/bank_probe.cuh"

template <int Stride>
struct StridedRead {
    static constexpr int words = 31 * Stride + patterns;
    __device__ static constexpr int word(int lane, int pattern) { return lane * Stride + pattern; }
};

template <int Stride, int Warps>
__global__ void __launch_bounds__(Warps * 32)
    bank_stride(int* __restrict__ offsets, unsigned* __restrict__ sums, long long* __restrict__ cycles,
                int elements) {
    using Access = StridedRead<Stride>;
    alignas(128) __shared__ unsigned memory[Access::words];
    probe_banks<Access, ReadVector<1>, Warps>(memory, offsets, sums, cycles, elements);
}
