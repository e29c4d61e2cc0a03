// C = alpha * A @ B + beta * C, row-major, 16-bit operands and result, fp32 sums: tiles in shared memory for WMMA.
//
// The technique: 4 x 2 warps share a 128 x 128 tile of C, and each owns 2 x 4 fragments of 16 x 16, so that a fragment of A
// serves four products and a fragment of B two (catalogue B2, `mma4x2_warp2x4` of text 003). Pad shifts the rows of both
// tiles over the banks; WMMA wants rows that start on a multiple of eight elements, so Pad is one (catalogue B4).
//
// Element: __half or __nv_bfloat16. BK: depth of the tiles, in elements. Pad: elements added to each row of both tiles.

#include <mma.h>

#include "element.cuh"
#include "index.cuh"
#include "tile_copy16.cuh"
#include "wmma_epilogue.cuh"

using namespace nvcuda;

constexpr int warp_rows = 4, warp_columns = 2;  // warps over the block tile
constexpr int tile_rows = 2, tile_columns = 4;  // fragments of a warp
constexpr int BM = warp_rows * tile_rows * 16;
constexpr int BN = warp_columns * tile_columns * 16;
constexpr int threads = warp_rows * warp_columns * 32;

// Two blocks on a multiprocessor: one computes while the other waits for its tiles.
template <class Element, int BK, int Pad>
__global__ void __launch_bounds__(threads, 2)
wmma_tile(const Element* __restrict__ a, const Element* __restrict__ b, Element* __restrict__ c,
          int m, int n, int k, float alpha, float beta) {
    constexpr int pitch_a = BK + Pad, pitch_b = BN + Pad;
    struct Tiles {
        Element a[BM * pitch_a], b[BK * pitch_b];
    };
    // The stage of the epilogue takes the place of the tiles when they are done with.
    union Shared {
        Tiles tiles;
        float stage[threads / 32][256];
    };
    alignas(128) __shared__ unsigned char bytes[sizeof(Shared)];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / warp_columns * tile_rows * 16;
    const int warp_column = warp % warp_columns * tile_columns * 16;
    const Index first_row = Index(blockIdx.y) * BM;
    const int first_column = blockIdx.x * BN;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[tile_rows][tile_columns];
    for (auto& row : sum) {
        for (auto& tile : row) wmma::fill_fragment(tile, 0.0f);
    }
    for (int first = 0; first < k; first += BK) {
        copy_tile<BM, BK, pitch_a, threads>(shared.tiles.a, a, m, k, first_row, first, threadIdx.x);
        copy_tile<BK, BN, pitch_b, threads>(shared.tiles.b, b, k, n, first, first_column, threadIdx.x);
        __syncthreads();  // wait until the tiles are complete

#pragma unroll
        for (int i = 0; i < BK; i += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> fragment_a[tile_rows];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major> fragment_b[tile_columns];
#pragma unroll
            for (int y = 0; y < tile_rows; ++y) {
                wmma::load_matrix_sync(fragment_a[y], shared.tiles.a + (warp_row + y * 16) * pitch_a + i, pitch_a);
            }
#pragma unroll
            for (int x = 0; x < tile_columns; ++x) {
                wmma::load_matrix_sync(fragment_b[x], shared.tiles.b + i * pitch_b + warp_column + x * 16, pitch_b);
            }
#pragma unroll
            for (int y = 0; y < tile_rows; ++y) {
#pragma unroll
                for (int x = 0; x < tile_columns; ++x) {
                    wmma::mma_sync(sum[y][x], fragment_a[y], fragment_b[x], sum[y][x]);
                }
            }
        }
        __syncthreads();  // wait until nobody reads them any more
    }

#pragma unroll
    for (int y = 0; y < tile_rows; ++y) {
#pragma unroll
        for (int x = 0; x < tile_columns; ++x) {
            store_accumulator(c, m, n, first_row + warp_row + y * 16, Index(first_column) + warp_column + x * 16,
                              shared.stage[warp], sum[y][x], alpha, beta);
        }
    }
}
