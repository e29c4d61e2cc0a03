// output[i] = mean(input[i .. i + K]) for i < elements - K: the line is kept in the registers of a warp, or of a tile of it.
//
// The technique: a tile of Lanes lanes holds its inputs round-robin in their registers, word i in register i / Lanes of lane
// i % Lanes, and lanes read each other's with __shfl_sync instead of shared memory (catalogue E3; text 004). A whole warp is
// the widest tile; narrower ones, as cooperative groups make them, fetch their K words of halo for fewer outputs (E5). Nobody
// leaves early and every shuffle names all 32 lanes, staying within a tile by its width, so the last tile is as safe as the
// first. With Coarsen > 1 a lane computes several outputs, Lanes apart, so that the halo is fetched once for more of them (E4).
//
// T: int or float. K: reach in elements. Coarsen: outputs per thread. Block: threads per block. Lanes: lanes of a tile.

#include "index.cuh"
#include "mean.cuh"

template <class T, int K, int Coarsen, int Block, int Lanes>
__global__ void __launch_bounds__(Block)
stencil_register_cache(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    static_assert(Lanes == 8 || Lanes == 16 || Lanes == 32, "a tile divides a warp");
    constexpr unsigned all_lanes = 0xffffffffu;
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
            // The first `turn` lanes are read by lanes that reach over the end of the register, into the next one. A shuffle
            // takes the number of a lane modulo the width of the tile.
            const T shared = lane < turn ? cache[lesser(near + 1, registers - 1)] : cache[near];
            sum += __shfl_sync(all_lanes, shared, threadIdx.x + turn, Lanes);
        }
        const Index at = first + i * Lanes + lane;
        if (at + K < elements) output[at] = mean<K + 1>(sum);
    }
}
