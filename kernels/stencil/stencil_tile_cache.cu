// output[i] = mean(input[i .. i + K]) for i < elements - K: the line is kept in the registers of 8, 16 or 32 lanes.
//
// The technique: the register cache of stencil_register_cache, over a tile of a warp as cooperative groups make them (catalogue
// E5; text 004). Word i of a tile lies in register i / Lanes of lane i % Lanes. A narrow tile fetches its K words of halo for
// fewer outputs. Every shuffle names all 32 lanes and stays within a tile by its width; nobody leaves early.
//
// T: int or float. K: reach in elements. Coarsen: outputs per thread. Block: threads per block. Lanes: lanes of a tile.

#include "index.cuh"
#include "mean.cuh"

template <class T, int K, int Coarsen, int Block, int Lanes>
__global__ void __launch_bounds__(Block)
stencil_tile_cache(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    static_assert(Lanes == 8 || Lanes == 16 || Lanes == 32, "a tile divides a warp");
    constexpr int outputs = Lanes * Coarsen;
    constexpr int registers = Coarsen + ceil_div(K, Lanes);
    const int lane = threadIdx.x % Lanes;
    const Index first = (Index(blockIdx.x) * (Block / Lanes) + threadIdx.x / Lanes) * outputs;

    T cache[registers];
#pragma unroll
    for (int i = 0; i < registers; ++i) {
        const int at = i * Lanes + lane;
        cache[i] = at < outputs + K && first + at < elements ? input[first + at] : T(0);
    }

#pragma unroll
    for (int i = 0; i < Coarsen; ++i) {
        T sum = cache[i];
#pragma unroll
        for (int tap = 1; tap <= K; ++tap) {
            const int near = i + tap / Lanes, turn = tap % Lanes;
            // The first `turn` lanes are read by lanes that reach over the end of the register, into the next one.
            const T shared = lane < turn ? cache[lesser(near + 1, registers - 1)] : cache[near];
            sum += __shfl_sync(0xffffffffu, shared, lane + turn, Lanes);
        }
        const Index at = first + i * Lanes + lane;
        if (at + K < elements) output[at] = mean<K + 1>(sum);
    }
}
