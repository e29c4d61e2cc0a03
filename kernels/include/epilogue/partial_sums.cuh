// Sums of a tile that two blocks share (stream-K), from one to the other through global memory. Each thread
// writes its own accumulators, vector by vector, so that a warp fills whole lines. The thread of the same
// number in the other block holds the same elements of the tile, and begins with these sums or adds them: the
// order of the additions is always the same. A flag says that they are there. It is zero before and after a
// launch.
#pragma once

#include "types/vector.cuh"

// Makes what a group of threads wrote ahead of a barrier visible to who finds the flag set.
__device__ inline void raise_flag(unsigned* flag) {
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}

// Waits until the flag is raised, and lowers it. Only one thread waits for a flag.
__device__ inline void take_flag(unsigned* flag) {
    unsigned raised;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
    } while (raised == 0);
    asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(flag) : "memory");
}

// The accumulators of Threads threads that share a barrier. `barrier()` is called by all of them. `sums` has
// room for them all, aligned to 16 bytes.
template <int Threads, int Count, class Barrier>
__device__ inline void leave_sums(const float (&accumulator)[Count], float* sums, unsigned* flag, int thread,
                                  Barrier barrier) {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
        const Vector<float, 4> four{
            {accumulator[i], accumulator[i + 1], accumulator[i + 2], accumulator[i + 3]}};
        store_vector(sums + (i / 4 * Threads + thread) * 4, four);
    }
    barrier();
    if (thread == 0) raise_flag(flag);
}

// Added: to what the accumulators hold, because wgmma whose accumulators begin with loads would be serialised
// (C7515); otherwise they go on where the other block stopped, which takes no more registers.
template <int Threads, bool Added, int Count, class Barrier>
__device__ inline void take_sums(float (&accumulator)[Count], const float* sums, unsigned* flag, int thread,
                                 Barrier barrier) {
    if (thread == 0) take_flag(flag);
    barrier();
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
        const auto four = load_vector<4>(sums + (i / 4 * Threads + thread) * 4);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            accumulator[i + w] = Added ? accumulator[i + w] + four.value[w] : four.value[w];
        }
    }
}
