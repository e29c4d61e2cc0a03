// C = alpha * A @ B + beta * C in fp32, row-major, in the shape of hip-gemm's kernels 4 to 9: tiles of
// 64 x 64 x 16, 256 threads, 4 x 4 outputs a thread, padded tiles, accesses of 16 bytes.
//
// The technique is a parameter, one step of the text each:
//   Operands   shared: each multiplication reads shared memory (kernel 4). registers: a thread reads its
//              values of a step first, then multiplies (kernel 5)
//   Depth      steps of K that a thread reads at a time: 1, or 2 (kernel 7)
//   Access     index: shared memory by its index. helper: by a function (kernel 7.2)
//   Lanes      rows: a warp's threads follow one another along a row of the tile. warp: they cover 16 x 32
//              outputs side by side (kernel 7.7)
//   Pieces     1: the 4 x 4 outputs side by side. 4: as four squares of 2 x 2, one in each quarter of the
//              tile (kernel 9)
//
// m and n are multiples of 64, k of 16.

#include "epilogue/combine_fp32.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

enum class Operands { shared, registers };
enum class Access { index, helper };
enum class Lanes { rows, warp };

constexpr int BM = 64, BN = 64, BK = 16, TM = 4, TN = 4, row_words = 64 + 4;

__device__ inline float word_at(const float* tile, int step, int place) {
    return tile[step * row_words + place];
}

// A thread's outputs along an edge of the tile: where the i-th of four lies.
template <int Pieces>
__device__ constexpr int place_of(int thread, int i) {
    return Pieces == 1 ? thread * 4 + i : i / 2 * 32 + thread * 2 + i % 2;
}

template <Operands From, int Depth, Access By, Lanes Map, int Pieces>
__global__ void __launch_bounds__(256)
hip_tile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k,
         float alpha, float beta) {
    alignas(16) __shared__ float s_a[BK][row_words], s_b[BK][row_words];  // A transposed
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int ty = Map == Lanes::rows ? thread / 16 : warp / 2 * 4 + lane / 8;
    const int tx = Map == Lanes::rows ? thread % 16 : warp % 2 * 8 + lane % 8;
    const int row_a = thread / 4, column_a = thread % 4 * 4, row_b = thread / 16, column_b = thread % 16 * 4;
    const Index first_row = Index(blockIdx.y) * BM, first_column = Index(blockIdx.x) * BN;
    const auto word = [](const float(&tile)[BK][row_words], int step, int place) {
        return By == Access::index ? tile[step][place] : word_at(&tile[0][0], step, place);
    };

    float r_c[TM][TN] = {};
    for (int first = 0; first < k; first += BK) {
        const auto of_a = load_vector<4>(a + (first_row + row_a) * k + first + column_a);
        const auto of_b = load_vector<4>(b + Index(first + row_b) * n + first_column + column_b);
#pragma unroll
        for (int w = 0; w < 4; ++w) s_a[column_a + w][row_a] = of_a.value[w];
        store_vector(&s_b[row_b][column_b], of_b);
        __syncthreads();  // the tiles are complete

#pragma unroll
        for (int step = 0; step < BK; step += Depth) {
            float r_a[Depth][TM], r_b[Depth][TN];
            if constexpr (From == Operands::registers) {
#pragma unroll
                for (int i = 0; i < Depth * 4; ++i) {
                    r_a[i / 4][i % 4] = word(s_a, step + i / 4, place_of<Pieces>(ty, i % 4));
                    r_b[i / 4][i % 4] = word(s_b, step + i / 4, place_of<Pieces>(tx, i % 4));
                }
            }
#pragma unroll
            for (int i = 0; i < Depth * TM * TN; ++i) {
                const int t = i / (TM * TN), y = i / TN % TM, x = i % TN;
                if constexpr (From == Operands::registers) {
                    r_c[y][x] += r_a[t][y] * r_b[t][x];
                } else {
                    r_c[y][x] += word(s_a, step + t, place_of<Pieces>(ty, y)) *
                                 word(s_b, step + t, place_of<Pieces>(tx, x));
                }
            }
        }
        __syncthreads();  // all threads have read them
    }

    constexpr int width = Pieces == 1 ? 4 : 2;
#pragma unroll
    for (int i = 0; i < TM * TN; i += width) {
        const int y = i / TN, x = i % TN;
        const Index row = first_row + place_of<Pieces>(ty, y);
        float* out = c + row * n + first_column + place_of<Pieces>(tx, x);
        store_combined_fp32<width>(out, &r_c[y][x], alpha, beta);
    }
}
