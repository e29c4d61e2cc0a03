// C = alpha * A @ B + beta * C on tensor cores, in fp16, bf16 or tf32: a 128 x 128 tile of C per block.
// Rung 2 of docs/ladders/tensor-cores.md: a shared tile.
//
// The technique: eight warps share the operands of a tile of C (gemm-practice, `mma4x2_warp2x4`). All
// threads copy tiles of A and B, 64 bytes deep, from global into shared memory; then each warp multiplies
// its 32 x 64 part by 2 x 4 fragments, each of which serves a whole row or column of them. A block loads
// an eighth of the bytes that the 64 warps of rung 1 load for as many outputs. The price: two barriers a
// tile, and copies, loads and products of a block take turns. In bf16 rows of the tiles lie 64 and 256
// bytes apart, so that rows of a fragment begin in the same banks: expect the loads to wait for each
// other.
//
// Element: __half, __nv_bfloat16, or float for tf32; sums are fp32. n and k: multiples of 16 bytes.

#include "copy/chunk_copy.cuh"
#include "copy/tile_pair.cuh"
#include "epilogue/warp_store.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/wmma.cuh"
#include "types/index.cuh"

constexpr int BM = 128, BN = 128, WM = 32, WN = 64;  // block tile and warp tile, in elements
constexpr int threads = BM / WM * (BN / WN) * 32;

template <class Element>
__global__ void __launch_bounds__(threads, 2)
wmma_shared_fragments(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
                      int m, int n, int k, float alpha, float beta) {
    constexpr int chunk = per_chunk<Element>, depth = 2 * chunk, BK = 2 * depth;  // 16, 32 and 64 bytes
    using LayoutA = PaddedChunks<BK / chunk, 0>;
    using LayoutB = PaddedChunks<BN / chunk, 0>;
    using CopyA = ChunkCopy<Element, BM, BK, LayoutA, threads>;
    using CopyB = ChunkCopy<Element, BK, BN, LayoutB, threads>;
    constexpr int pitch_a = LayoutA::pitch / sizeof(Element), pitch_b = LayoutB::pitch / sizeof(Element);
    extern __shared__ __align__(128) char shared[];  // the tile of A, and behind it that of B
    const int thread = threadIdx.x, warp = thread / 32;
    const int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN;
    const Index first_row = Index(blockIdx.y) * BM;
    const int first_column = blockIdx.x * BN;
    TilePair<CopyA, CopyB> copies{CopyA(a, m, k, first_row, 0, thread),
                                  CopyB(b, k, n, 0, first_column, thread)};
    const unsigned from_a = shared_address(shared) + LayoutA::offset(warp_row, 0);
    const unsigned from_b = shared_address(shared) + CopyA::bytes + LayoutB::offset(0, warp_column / chunk);

    WmmaAccumulator<float, depth> accumulator[WM / 16][WN / 16];
#pragma unroll 1
    for (int first = 0; first < k; first += BK) {
        copies.copy(shared);
        copies.advance();  // along K: A's tile to the right, B's down
        __syncthreads();  // the tiles are complete
#pragma unroll
        for (int step = 0; step < BK / depth; ++step) {
            WmmaFragment<Element> of_a[WM / 16], of_b[WN / 16];
#pragma unroll
            for (int y = 0; y < WM / 16; ++y) {
                of_a[y].load_a(from_a + LayoutA::offset(16 * y, 2 * step), pitch_a);
            }
#pragma unroll
            for (int x = 0; x < WN / 16; ++x) {
                of_b[x].load_b(from_b + LayoutB::offset(depth * step, 16 / chunk * x), pitch_b);
            }
#pragma unroll
            for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
                for (int x = 0; x < WN / 16; ++x) accumulator[y][x].mma(of_a[y], of_b[x]);
            }
        }
        __syncthreads();  // all warps have read them
    }

    const Index row = first_row + warp_row, column = Index(first_column) + warp_column;
    constexpr int pitch = shared_pitch<Element, 16>;
    float* shared_c = reinterpret_cast<float*>(shared) + warp * shared_rows_wmma * pitch;
#pragma unroll
    for (int y = 0; y < WM / 16; ++y) {
#pragma unroll
        for (int x = 0; x < WN / 16; ++x) {
            accumulator[y][x].store(shared_address(shared_c), pitch);
            __syncwarp();
            store_rows<16>(c, m, n, row + 16 * y, column + 16 * x, shared_c, alpha, beta);
            __syncwarp();  // shared_c has been read
        }
    }
}
