// C = alpha * A @ B + beta * C in fp32, row-major: TM x TN outputs per thread as a sum of outer products in registers.
//
// The technique: per K step a thread reads a column of A and a row of B into registers once and multiplies each with
// each. Stored transposed, A's column is a row of shared memory and loads as LDS.128, four values an instruction, at the
// price of one STS.32 per element; TransposeA = false is the twin that pays one LDS.32 per value instead (catalogue A8;
// text 002, kernel 3.3, and text 003).
//
// BM, BN, BK: block tile, in elements. TM, TN: outputs of a thread. TransposeA: A lies as BK x BM in shared memory.
// Pad: words added to each row of both tiles. Width: words per global access. Lanes: order of a warp's lanes.

#include "epilogue.cuh"
#include "fragment.cuh"
#include "index.cuh"
#include "shared_layout.cuh"
#include "thread_map.cuh"
#include "tile_copy.cuh"

template <bool Yes, class Then, class Else>
struct Either { using type = Then; };
template <class Then, class Else>
struct Either<false, Then, Else> { using type = Else; };

// Half of the register file for one block: at most 128 registers a thread keep 512 threads on a multiprocessor.
__host__ __device__ constexpr int blocks_per_sm(int threads) { return threads < 512 ? 512 / threads : 1; }

template <int BM, int BN, int BK, int TM, int TN, bool TransposeA, int Pad, int Width, LaneMap Lanes>
__global__ void __launch_bounds__(BM * BN / (TM * TN), blocks_per_sm(BM * BN / (TM * TN)))
gemm_register_tile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                   int m, int n, int k, float alpha, float beta) {
    constexpr int threads = BM * BN / (TM * TN);
    using LayoutA = typename Either<TransposeA, Padded<BK, BM, Pad>, Padded<BM, BK, Pad>>::type;
    using LayoutB = Padded<BK, BN, Pad>;
    using Map = ThreadMap<Lanes, BM / TM, BN / TN>;
    using SplitA = SplitFragment<TM, BM / TM>;
    using SplitB = SplitFragment<TN, BN / TN>;
    alignas(16) __shared__ float tile_a[LayoutA::words];
    alignas(16) __shared__ float tile_b[LayoutB::words];
    const int thread = threadIdx.x;
    const int thread_row = Map::row(thread);
    const int thread_column = Map::column(thread);
    const Index first_row = Index(blockIdx.y) * BM;
    const int first_column = blockIdx.x * BN;

    float sum[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
        TileCopy<BM, BK, Width, threads> copy_a;
        TileCopy<BK, BN, Width, threads> copy_b;
        copy_a.load(a, m, k, first_row, first, thread);
        copy_b.load(b, k, n, first, first_column, thread);
        __syncthreads();  // wait until nobody reads the previous tiles any more
        if constexpr (TransposeA) {
            copy_a.template store_transposed<LayoutA>(tile_a, thread);
        } else {
            copy_a.template store<LayoutA>(tile_a, thread);
        }
        copy_b.template store<LayoutB>(tile_b, thread);
        __syncthreads();  // wait until the tiles are complete

#pragma unroll 16
        for (int i = 0; i < BK; ++i) {
            float column_a[TM], row_b[TN];
            if constexpr (TransposeA) {
                load_along_row<LayoutA, SplitA>(column_a, tile_a, i, thread_row);
            } else {
                load_down_column<LayoutA, SplitA>(column_a, tile_a, i, thread_row);
            }
            load_along_row<LayoutB, SplitB>(row_b, tile_b, i, thread_column);
#pragma unroll
            for (int y = 0; y < TM; ++y) {
#pragma unroll
                for (int x = 0; x < TN; ++x) sum[y][x] += column_a[y] * row_b[x];
            }
        }
    }

    constexpr int group = lesser(Width, SplitB::group);
#pragma unroll
    for (int y = 0; y < TM; ++y) {
        const Index row = first_row + SplitA::position(thread_row, y);
#pragma unroll
        for (int x = 0; x < TN; x += group) {
            const Index column = Index(first_column) + SplitB::position(thread_column, x);
            if (row >= m || column >= n) continue;
            store_outputs<group>(c + row * n + column, sum[y] + x, alpha, beta);
        }
    }
}
