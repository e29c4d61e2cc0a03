// C = alpha * A @ B + beta * C for few rows of A, B stored as N x K: a ring of bulk copies of rows.
//
// As in the last file of the sums, what is under way does not depend on threads: the lanes of one warp ask
// for lines of Line bytes, one of each row of B and of A, and a stage of the ring holds all of them. The
// other warps multiply Rows rows each. The copying warp goes on to the next rows while the last lines of
// these are multiplied, so that the memory waits neither for sums nor for the start of a block.

#include "epilogue/combine.cuh"
#include "ptx/bulk_copy.cuh"
#include "schedule/ring.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// The sum over a warp, in all lanes.
__device__ float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
}

// Batch: rows of A. Rows: of B, of a warp. Block threads multiply, one warp copies. Line: bytes of a row in
// a stage.
template <class T, int Batch, int Rows, int Block, int Stages, int Line>
__global__ void __launch_bounds__(Block + 32)
gemv_bulk_rows(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k,
               float alpha, float beta) {
    constexpr int width = 16 / sizeof(T), room = Line / 16, outputs = Block / 32 * Rows;
    using Lines = Vector<T, width>[outputs + Batch][room];  // of B, then of A
    alignas(128) extern __shared__ unsigned char memory[];
    auto* ring = reinterpret_cast<Lines*>(memory);
    __shared__ RingBarriers<Stages> barriers;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, vectors = k / width;
    if (threadIdx.x == 0) barriers.init(Block / 32);  // each warp that multiplies hands a stage back
    __syncthreads();                                  // the barriers are there

    const int first_of_a = blockIdx.y * Batch, rows_of_a = min(Batch, m - first_of_a);
    auto at = barriers.begin();
    for (int first_of_b = blockIdx.x * outputs; first_of_b < n; first_of_b += gridDim.x * outputs) {
        const int rows_of_b = min(outputs, n - first_of_b);
        float own[Batch][Rows] = {};
#pragma unroll 1
        for (int first = 0; first < vectors; first += room) {
            const int count = min(room, vectors - first);
            Lines& lines = ring[at.stage];
            if (warp == Block / 32) {
                barriers.wait_until_empty(at);
                if (lane == 0) {
                    mbarrier_arrive_expect(barriers.full[at.stage], 16 * count * (rows_of_a + rows_of_b));
                }
#pragma unroll 1
                for (int i = lane; i < rows_of_b + rows_of_a; i += 32) {
                    const int j = i - rows_of_b;  // of A, from 0 on
                    const T* from = j < 0 ? b + Index(first_of_b + i) * k : a + Index(first_of_a + j) * k;
                    bulk_load(lines[j < 0 ? i : outputs + j], from + width * first, 16 * count,
                              barriers.full[at.stage]);
                }
            } else {
                mbarrier_wait(barriers.full[at.stage], at.parity);
                for (int i = lane; i < count; i += 32) {
                    Vector<T, width> of_b[Rows];
#pragma unroll
                    for (int r = 0; r < Rows; ++r) of_b[r] = lines[warp * Rows + r][i];
#pragma unroll
                    for (int j = 0; j < Batch; ++j) {
                        const Vector<T, width> x = lines[outputs + j][i];
#pragma unroll
                        for (int e = 0; e < Rows * width; ++e) {
                            const T left = of_b[e / width].value[e % width];
                            own[j][e / width] += to_float(left) * to_float(x.value[e % width]);
                        }
                    }
                }
                __syncwarp();  // all lanes have read it
                if (lane == 0) mbarrier_arrive(barriers.empty[at.stage]);
            }
            at.advance();
        }
        if (warp == Block / 32) continue;

        float mine[(Batch * Rows + 31) / 32] = {};  // a lane stores every 32nd output
#pragma unroll
        for (int j = 0; j < Batch * Rows; ++j) {
            const float sum = warp_sum(own[j / Rows][j % Rows]);
            if (lane == j % 32) mine[j / 32] = sum;
        }
#pragma unroll
        for (int j = 0; j < Batch * Rows; j += 32) {
            const float sum[1] = {mine[j / 32]};
            const int of_a = first_of_a + (j + lane) / Rows;
            const int of_b = first_of_b + warp * Rows + (j + lane) % Rows;
            if (j + lane >= Batch * Rows || of_a >= m || of_b >= n) continue;
            store_combined(c + Index(of_a) * n + of_b, sum, alpha, beta);
        }
    }
}
