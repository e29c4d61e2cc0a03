// Repeats one shared-memory access and times it: what every kernel of the problem `banks` shares.
//
// An Access says which word lane l reads in pattern j: `Access::word(l, j)`, 0 <= j < 32, below `Access::words`. Every warp
// makes the same accesses. Word w of the memory holds w * 2654435761 (mod 2^32), so that the sum of the words read shows
// that the addresses were the ones written to `offsets`.
#pragma once

constexpr int patterns = 32;

// ld.volatile.shared.u32 (PTX ISA 9.7.9.8, ld): volatile in PTX as well as in C++, so that neither compiler drops or joins
// loads of an address it has seen before.
__device__ inline unsigned load_shared(unsigned address) {
    unsigned word;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

// `elements` accesses per lane, a multiple of 32. Called by all threads of a block of Warps warps.
template <class Access, int Warps>
__device__ inline void probe_banks(unsigned* memory, int* offsets, unsigned* sums, long long* cycles, int elements) {
    const int thread = threadIdx.x;
    const int lane = thread % 32;
    for (int word = thread; word < Access::words; word += Warps * 32) memory[word] = word * 2654435761u;

    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    unsigned address[patterns];
#pragma unroll
    for (int j = 0; j < patterns; ++j) address[j] = base + 4 * Access::word(lane, j);
    for (int j = thread / 32; j < patterns; j += Warps) offsets[j * 32 + lane] = 4 * Access::word(lane, j);

    __syncthreads();  // the memory is filled
    const long long start = clock64();
    __syncthreads();  // nobody reads before the clock is taken
    unsigned sum = 0;
#pragma unroll 1
    for (int done = 0; done < elements; done += patterns) {
        unsigned word[patterns];  // 32 independent loads in flight
#pragma unroll
        for (int j = 0; j < patterns; ++j) word[j] = load_shared(address[j]);
#pragma unroll
        for (int j = 0; j < patterns; ++j) sum += word[j];
    }
    sums[thread] = sum;
    __syncthreads();  // everybody has read
    if (thread == 0) *cycles = clock64() - start;
}
