// output[i] = mean(input[i .. i + 2 Radius]) for i < elements - 2 Radius: four neighbouring outputs from sums
// of four neighbouring inputs.
//
// The technique: shared partial sums (own). All accesses to global memory move quads (16 bytes); neighbouring
// lanes move neighbouring quads. The four windows that begin in a quad share every quad that lies wholly
// between their ends: it enters all of them as one number, its sum. Only the ragged ends are summed per
// output. At radius 16 an output costs about seven additions and three exchanges, instead of 32 of each.
// Nothing is ever subtracted from a sum, so the result rounds no worse than adding the inputs one by one.
//
// Where a thread finds the quads of its neighbours (Exchange):
//   shuffle   registers of the warp; a warp's rows are consecutive, so a row's neighbours to the right are
//             the next row
//   shared    quads and their sums pass through shared memory, once for the block
//   direct    every thread loads them itself; the hardware's L1 is the cache
//
// T: int or float. Radius: in elements, at most 16. Outputs: outputs per thread, 4 or more. Block: threads
// per block.

#include "simt/stencil.cuh"
#include "types/index.cuh"

enum class Exchange { shuffle, shared, direct };

template <int Halo, CacheHint Hint, class T>
__device__ inline void store_means(T* line, Index at, Index end, const Quad<T>& sums) {
    Quad<T> means;
#pragma unroll
    for (int i = 0; i < 4; ++i) means.word[i] = mean<Halo + 1>(sums.word[i]);
    store_quad<Hint>(line, at, end, means);
}

template <class T, int Radius, int Outputs, int Block, Exchange Source, CacheHint Hint>
__global__ void __launch_bounds__(Block)
stencil_window(const T* __restrict__ input, T* __restrict__ output, Index elements) {
    static_assert(Radius <= 16 && Outputs % 4 == 0, "a row of 32 quads ends in the next row, no further");
    constexpr int rows = Outputs / 4;
    constexpr int halo = 2 * Radius, halo_quads = (halo + 3) / 4;
    // Lanes that own consecutive quads: a row. Every row of a warp, or of a block, continues the one before.
    constexpr int width = Source == Exchange::shuffle ? 32 : Block;
    const int place = threadIdx.x % width;
    const Index first = ((Index(blockIdx.x) * Block + threadIdx.x / width * width) * rows + place) * 4;

    Quad<T> row[rows + 1] = {};
    if constexpr (Source != Exchange::direct) {
        load_quads<rows>(row, input, first, width * 4, elements);
        if (place < halo_quads) row[rows] = load_quad(input, first + rows * width * 4, elements);
    }

    if constexpr (Source == Exchange::shuffle) {
        T sums[rows + 1];
#pragma unroll
        for (int r = 0; r <= rows; ++r) sums[r] = part(row[r], 0, 3);
#pragma unroll
        for (int r = 0; r < rows; ++r) {
            // Lanes that reach over the end of a row read the first m lanes, and want their next row. A
            // shuffle takes the number of a lane modulo the width of the warp.
            const auto right = [&](int m, T here, T next) {
                return __shfl_sync(0xffffffffu, place < m ? next : here, threadIdx.x + m);
            };
            const Quad<T> windows = four_windows<halo>(
                row[r], [&](int m) { return right(m, sums[r], sums[r + 1]); },
                [&](int m, int last) { return right(m, part(row[r], 0, last), part(row[r + 1], 0, last)); });
            store_means<halo, Hint>(output, first + r * width * 4, elements - halo, windows);
        }
    } else if constexpr (Source == Exchange::shared) {
        constexpr int line = Block * rows + halo_quads;
        __shared__ Quad<T> quads[line];
        __shared__ T sums[line];
#pragma unroll
        for (int r = 0; r <= rows; ++r) {
            const int at = r * Block + place;
            if (at < line) {
                quads[at] = row[r];
                sums[at] = part(row[r], 0, 3);
            }
        }
        __syncthreads();  // wait until the line is complete
#pragma unroll
        for (int r = 0; r < rows; ++r) {
            const int at = r * Block + place;
            const Quad<T> windows = four_windows<halo>(
                row[r], [&](int m) { return sums[at + m]; },
                [&](int m, int last) { return part(quads[at + m], 0, last); });
            store_means<halo, Hint>(output, first + r * width * 4, elements - halo, windows);
        }
    } else {
#pragma unroll
        for (int r = 0; r < rows; ++r) {
            const Index at = first + r * width * 4;
            Quad<T> near[halo_quads + 1];
            load_quads<halo_quads + 1>(near, input, at, 4, elements);
            const Quad<T> windows = four_windows<halo>(
                near[0], [&](int m) { return part(near[m], 0, 3); },
                [&](int m, int last) { return part(near[m], 0, last); });
            store_means<halo, Hint>(output, at, elements - halo, windows);
        }
    }
}
