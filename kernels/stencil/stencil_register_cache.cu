// output[i] = mean(input[i .. i + 2 Radius]) for i < elements - 2 Radius: the line is kept in the registers
// of a warp or of a part of it.
//
// The technique: a register cache (register-cache, register-cache-blog). A tile of Lanes lanes holds its
// inputs round-robin in its registers: word i in register i / Lanes of lane i % Lanes. Lanes read the words
// of other lanes with __shfl_sync instead of shared memory. The widest tile is a whole warp. A narrower tile,
// as cooperative groups make it, fetches its 2 Radius words of halo for fewer outputs. With Coarsen > 1 a
// lane computes several outputs, Lanes apart, so that the halo is fetched once for more of them.
// Unlike the source, no thread returns early, so that all lanes take part in every shuffle, in the last tile
// as well.
//
// Which lanes a shuffle names (Names):
//   full     all 32. A full mask is safer: the shuffle waits for every lane, where a branch parted them too.
//   active   __activemask(), as the source has it. In a divergent branch it names only who happens to be
//            there, and what a lane reads from another one is undefined. Here no branch diverges, so that
//            both give the same answer.
//
// T: int or float. Radius: in elements, at most 32. Coarsen: outputs per thread. Block: threads per block.
// Lanes: lanes of a tile.

#include "simt/stencil.cuh"
#include "types/index.cuh"

enum class Mask { full, active };

template <class T, int Radius, int Coarsen, int Block, int Lanes, Mask Names>
__global__ void __launch_bounds__(Block)
stencil_register_cache(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    static_assert(Lanes == 8 || Lanes == 16 || Lanes == 32, "a tile divides a warp");
    constexpr int outputs = Lanes * Coarsen, halo = 2 * Radius;
    constexpr int registers = Coarsen + ceil_div(halo, Lanes);
    const int lane = threadIdx.x % Lanes;
    const Index first = (Index(blockIdx.x) * (Block / Lanes) + threadIdx.x / Lanes) * outputs;

    T cache[registers];
#pragma unroll
    for (int i = 0; i < registers; ++i) {
        const int at = i * Lanes + lane;
        cache[i] = at < outputs + halo && first + at < elements ? input[first + at] : T(0);
    }

#pragma unroll
    for (int i = 0; i < Coarsen; ++i) {
        T sum = cache[i];
#pragma unroll
        for (int tap = 1; tap <= halo; ++tap) {
            const int near = i + tap / Lanes, turn = tap % Lanes;
            // Lanes that reach over the end of a register read the first `turn` lanes, and want their next
            // register: each lane offers the word that its reader wants. A shuffle takes the number of a
            // lane modulo the width of the tile.
            const T offered = lane < turn ? cache[const_min(near + 1, registers - 1)] : cache[near];
            const unsigned mask = Names == Mask::full ? 0xffffffffu : __activemask();
            sum += __shfl_sync(mask, offered, threadIdx.x + turn, Lanes);
        }
        const Index at = first + i * Lanes + lane;
        if (at + halo < elements) output[at] = mean<halo + 1>(sum);
    }
}
