// output[i] = mean(input[i .. i + K]) for i < elements - K: the line is kept in the registers of a warp.
//
// The technique: a warp holds its inputs round-robin in its lanes' registers, word i in register i / 32 of lane i % 32, and
// lanes read each other's with __shfl_sync instead of shared memory (catalogue E3; text 004). Nobody leaves early and every
// shuffle names all 32 lanes, so the last warp is as safe as the first. With Coarsen > 1 a lane computes several outputs, 32
// apart, so that the K words fetched by two warps are fetched once for more outputs (E4).
//
// T: int or float. K: reach in elements, at most 32. Coarsen: outputs per thread. Block: threads per block.

#include "index.cuh"
#include "mean.cuh"

template <class T, int K, int Coarsen, int Block>
__global__ void __launch_bounds__(Block)
stencil_register_cache(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    static_assert(K <= 32, "a tap reaches into the next register of a neighbour, no further");
    constexpr unsigned all_lanes = 0xffffffffu;
    constexpr int outputs = 32 * Coarsen;
    const int lane = threadIdx.x % 32;
    const Index first = (Index(blockIdx.x) * (Block / 32) + threadIdx.x / 32) * outputs;

    T cache[Coarsen + 1];
#pragma unroll
    for (int i = 0; i <= Coarsen; ++i) {
        const int at = i * 32 + lane;
        cache[i] = at < outputs + K && first + at < elements ? input[first + at] : T(0);
    }

#pragma unroll
    for (int i = 0; i < Coarsen; ++i) {
        T sum = cache[i];
#pragma unroll
        for (int tap = 1; tap <= K; ++tap) {
            // The first `tap` lanes are read by lanes that reach over the end of the register, into the next one.
            const T shared = lane < tap ? cache[i + 1] : cache[i];
            sum += __shfl_sync(all_lanes, shared, (lane + tap) % 32);
        }
        const Index at = first + i * 32 + lane;
        if (at + K < elements) output[at] = mean<K + 1>(sum);
    }
}
