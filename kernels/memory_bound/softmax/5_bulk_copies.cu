// output[r][c] = exp(input[r][c] - m) / S: the row in shared memory, where bulk copies bring it.
//
// Registers end at 32768 columns, and a thread that holds 32 numbers leaves room for few others. A block
// has 224 KiB of shared memory: 57344 columns of fp32, 114688 of bf16. One thread asks for all of the row
// (cp.async.bulk), in Pieces with a barrier each, and several blocks of a multiprocessor have theirs under
// way. Maximum and sum are carried on as pieces arrive; the outputs are made from shared memory.

#include "ptx/bulk_copy.cuh"
#include "simt/normalizer.cuh"
#include "types/index.cuh"

template <class T, int Pieces>
__global__ void __launch_bounds__(1024)
softmax_bulk_copies(const T* __restrict__ input, T* __restrict__ output, Index columns) {
    constexpr int width = 16 / sizeof(T);  // elements of a vector
    alignas(128) extern __shared__ unsigned char memory[];
    __shared__ Mbarrier full[Pieces];
    auto* row = reinterpret_cast<Vector<T, width>*>(memory);
    const T* from = input + blockIdx.x * columns;
    T* to = output + blockIdx.x * columns;
    const int thread = threadIdx.x, threads = blockDim.x;
    const int vectors = columns / width, piece = ceil_div(vectors, Pieces);

    if (thread == 0) {
        for (int p = 0; p < Pieces; ++p) mbarrier_init(full[p], 1);
        fence_mbarrier_init();
        for (int p = 0; p * piece < vectors; ++p) {
            const int first = p * piece, bytes = 16 * min(piece, vectors - first);
            mbarrier_arrive_expect(full[p], bytes);
            bulk_load(row + first, from + width * first, bytes, full[p]);
        }
    }
    __syncthreads();  // the barriers are there

    Normalizer whole = Normalizer::of_none();
    for (int p = 0; p * piece < vectors; ++p) {
        mbarrier_wait(full[p], 0);
        const int end = min((p + 1) * piece, vectors);
        for (int i = p * piece + thread; i < end; i += threads) whole.add(row[i]);
    }
    whole = over_block(whole);

    const float scale = 1.0f / whole.sum;
    for (int i = thread; i < vectors; i += threads) {
        Vector<T, width> made = row[i];
#pragma unroll
        for (int j = 0; j < width; ++j) {
            made.value[j] = from_float<T>(exp_to_zero(to_float(made.value[j]) - whole.maximum) * scale);
        }
        store_vector<width>(to + width * i, made);
    }
}
