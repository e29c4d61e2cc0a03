// C = alpha * A @ B + beta * C, 16-bit operands and result, fp32 accumulators: one tile of C per block.
// Rung 1 of docs/ladders/tensor-cores.md: TMA and wgmma.
//
// The technique: TMA and wgmma in their simplest use (ptx-isa). One thread starts the copies of the tiles of
// a K step, all threads wait for the bytes at one mbarrier, and the warpgroup (128 threads) multiplies them
// straight from shared memory: no thread loads operands into registers or computes their addresses. An
// mbarrier ends a phase once the expected threads have arrived and the expected bytes are there; the parity
// of the phase, 0, 1, 0, ..., says which one to wait for. Within a block nothing overlaps yet: its wgmma wait
// for every copy, and every copy waits for the wgmma before it. But a multiprocessor has room for three
// blocks (154 registers a thread, 33 KiB), and one may multiply while another waits.
//
// Element: __nv_bfloat16 or __half. MajorB: Major::mn for B stored as K x N, Major::k for N x K. BM, BN:
// block tile in elements, 128 x 128 by default; BK is 64, one swizzled line of 128 bytes. The maps come from
// the host, made for copies of that size. TMA fills what lies outside of the matrix with zeros, and counts
// their bytes too.

#include "epilogue/warpgroup_store.cuh"
#include "mma/operand_tile.cuh"
#include "types/index.cuh"

template <class Element, Major MajorB, int BM, int BN>
struct Shared {
    OperandTile<Element, Major::k, BM> a;
    OperandTile<Element, MajorB, BN> b;
    Mbarrier full;
};

template <class Element, Major MajorB, int BM, int BN>
__global__ void __launch_bounds__(warpgroup_threads, 1)  // 1 is the least asked for; three fit
hopper_tma_wgmma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                 Element* c, int m, int n, int k, float alpha, float beta) {
    if (k == 0) return scale_c(c, m, n, beta);
    alignas(1024) extern __shared__ unsigned char memory[];  // TMA's swizzle repeats every 1024 bytes
    auto& shared = *reinterpret_cast<Shared<Element, MajorB, BM, BN>*>(memory);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    if (threadIdx.x == 0) {
        mbarrier_init(shared.full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    static_assert(BM % 64 == 0, "a wgmma has 64 rows");
    float accumulator[BM / 64][BN / 2];  // 64 x BN results over 128 threads
    unsigned parity = 0;  // of the barrier's phase; a K step is one phase
    for (int first = 0; first < k; first += shared.a.depth, parity ^= 1) {
        if (threadIdx.x == 0) {
            // The one arrival that the barrier counts; the phase ends when these bytes have come as well.
            mbarrier_arrive_expect(shared.full, shared.a.bytes + shared.b.bytes);
            shared.a.load(map_a, first_row, first, shared.full);
            shared.b.load(map_b, first_column, first, shared.full);
        }
        mbarrier_wait(shared.full, parity);  // the bytes are there
        wgmma_fence();  // what the thread has done with its accumulators comes before the wgmma
        // Four wgmma of K = 16 per 64 rows (mma/operand_tile.cuh), from row 0 of A's tile, column 0 of B's.
        // The first step does not add: the sums begin at zero.
        wgmma_tiles(accumulator, shared.a, shared.b, 0, 0, first > 0);
        wgmma_commit();
        wgmma_wait_all(accumulator);  // the thread may read its accumulators again
        __syncthreads();  // all wgmma have read the tiles
    }
    const MatrixC<Element> result{c, m, n, alpha, beta};
    combine_accumulators(accumulator, result, first_row, first_column, threadIdx.x);
    store_direct(accumulator, result, first_row, first_column, threadIdx.x);
}
