// output[r][c] = exp(input[r][c] - m) / S: the row lies in the registers of a cluster, and no block stays.
//
// The ring of the file before keeps loads under way while a block computes, and each multiprocessor has one
// block, whose warps meet those of the cluster once a row. Here a thread loads its Items numbers straight
// into registers, all at once, as in file 4, and a cluster leaves after one row. Loads are under way all the
// same, since a multiprocessor has several blocks: while one computes, sends or stores, another one loads.
// The more blocks, the better: numbers stay as they were loaded, two of bf16 in a register, and are
// exponentiated twice, for the sum and for the output. Special functions have the time.
//
// A warp sends its maximum and sum to all blocks of the cluster, by stores whose bytes an mbarrier counts
// there, and waits for those of the others and for nothing else. A block has got all that is sent to it
// before it leaves. The one barrier of the cluster comes while loads are under way.

#include "ptx/async_store.cuh"
#include "ptx/cluster.cuh"
#include "simt/normalizer.cuh"
#include "types/index.cuh"

// Number j of a vector. Of bf16 by an instruction of its own: else the compiler would keep the floats of the
// first reading, which take twice the registers.
__device__ inline float read_again(const Vector<float, 4>& numbers, int j) { return numbers.value[j]; }
__device__ inline float read_again(const Vector<__nv_bfloat16, 8>& numbers, int j) {
    const unsigned pair = reinterpret_cast<const Vector<unsigned, 4>&>(numbers).value[j / 2];
    unsigned bits;
    asm volatile("prmt.b32 %0, %1, 0, %2;" : "=r"(bits) : "r"(pair), "r"(j % 2 == 0 ? 0x1044 : 0x3244));
    return __uint_as_float(bits);
}

// Cluster blocks of Block threads share a row. A multiprocessor has registers for Resident blocks.
template <class T, int Cluster, int Block, int Items, int Resident>
__global__ void __launch_bounds__(Block, Resident)
softmax_cluster_registers(const T* __restrict__ input, T* __restrict__ output, Index columns) {
    constexpr int width = 16 / sizeof(T), lines = Items / width, warps = Block / 32;
    constexpr unsigned nothing = sizeof(T) == 4 ? 0xff800000 : 0xff80ff80;  // -inf, whose exponential is 0
    using Line = Vector<T, width>;
    __shared__ Mbarrier sent;
    __shared__ Normalizer of_warp[Cluster * warps];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int most = ceil_div(columns / width, Cluster), begin = cluster_rank() * most;  // in vectors
    const int vectors = min(most, static_cast<int>(columns / width) - begin);
    const Index first = blockIdx.x / Cluster * columns + width * begin;
    auto* from = reinterpret_cast<const Line*>(input + first);
    auto* to = reinterpret_cast<Line*>(output + first);

    // Behind the end of the share some vector of the row: loads under a condition waited for each other.
    Line held[lines];
    const int last = max(vectors - 1, -begin);
#pragma unroll
    for (int i = 0; i < lines; ++i) held[i] = from[min(thread + i * Block, last)];

    if (thread == 0) {
        mbarrier_init(sent, 1);
        mbarrier_arrive_expect(sent, sizeof(of_warp));
        fence_mbarrier_init();
    }
    cluster_barrier();  // the barriers of all blocks are there

    Normalizer own = Normalizer::of_none();
#pragma unroll
    for (int i = 0; i < lines; ++i) {
        Vector<unsigned, 4> words{nothing, nothing, nothing, nothing};
        if (thread + i * Block < vectors) words = reinterpret_cast<Vector<unsigned, 4>&>(held[i]);
        own.add(reinterpret_cast<Line&>(words));
    }
    own = over_warp(own);
    if (lane < Cluster) {
        store_pair_in_block(&of_warp[cluster_rank() * warps + warp], own.maximum, own.sum, sent, lane);
    }
    mbarrier_wait(sent, 0);
    Normalizer whole = Normalizer::of_none();
    for (int i = lane; i < Cluster * warps; i += 32) whole.add(of_warp[i]);
    whole = over_warp(whole);

    const float scale = 1.0f / whole.sum;
#pragma unroll
    for (int i = 0; i < lines; ++i) {
        Line made;
#pragma unroll
        for (int j = 0; j < width; ++j) {
            made.value[j] = from_float<T>(exp_to_zero(read_again(held[i], j) - whole.maximum) * scale);
        }
        if (thread + i * Block < vectors) to[thread + i * Block] = made;
    }
}
