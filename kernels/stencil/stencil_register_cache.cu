// output[i] = mean(input[i .. i + K]) for i < elements - K: the line is kept in the registers of a warp or of
// a part of it.
//
// The technique: a register cache (register-cache, register-cache-blog). A tile of Lanes lanes holds its
// inputs round-robin in its registers: word i in register i / Lanes of lane i % Lanes. Lanes read the words
// of other lanes with __shfl_sync instead of shared memory. The widest tile is a whole warp. A narrower tile,
// as cooperative groups make it, fetches its K words of halo for fewer outputs. With Coarsen > 1 a lane
// computes several outputs, Lanes apart, so that the halo is fetched once for more of them.
// Unlike the source, no thread returns early and every shuffle names all 32 lanes, so the last tile is safe
// as well.
//
// T: int or float. K: reach in elements. Coarsen: outputs per thread. Block: threads per block. Lanes: lanes
// of a tile.

#include "simt/stencil.cuh"
#include "types/index.cuh"

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
            // Lanes that reach over the end of a register read the first `turn` lanes, and want their next
            // register: each lane offers the word that its reader wants. A shuffle takes the number of a
            // lane modulo the width of the tile.
            const T offered = lane < turn ? cache[const_min(near + 1, registers - 1)] : cache[near];
            sum += __shfl_sync(all_lanes, offered, threadIdx.x + turn, Lanes);
        }
        const Index at = first + i * Lanes + lane;
        if (at + K < elements) output[at] = mean<K + 1>(sum);
    }
}
