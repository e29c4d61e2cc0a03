// Repeats one shared-memory access and times it: what every kernel of the problem `banks` shares.
//
// An Access says which word lane l addresses in pattern j: `Access::word(l, j)`, 0 <= j < 32, with all its
// words below `Access::words`. Every warp makes the same accesses. A Move (bank_moves.cuh) is the
// instruction. Word w of the memory holds w * 2654435761 (mod 2^32), so that the sum of the words read shows
// that the addresses were the ones written to `offsets`. A Move that writes gives word w that value, over
// memory that held another; after the clock was stopped, each lane reads its words back.
#pragma once

#include "probe/bank_moves.cuh"
#include "ptx/shared_memory.cuh"

constexpr int patterns = 32;
constexpr unsigned word_value = 2654435761u;

// Reads all patterns once and adds the words to `sum`. 32 registers' worth of independent loads are in
// flight.
template <class Move>
__device__ inline void read_patterns(const unsigned (&address)[patterns], unsigned& sum) {
    constexpr int flight = patterns / Move::words;
#pragma unroll
    for (int first = 0; first < patterns; first += flight) {
        unsigned word[flight][Move::words];
#pragma unroll
        for (int j = 0; j < flight; ++j) Move::load(address[first + j], word[j]);
#pragma unroll
        for (int j = 0; j < flight; ++j) {
#pragma unroll
            for (int part = 0; part < Move::words; ++part) sum += word[j][part];
        }
    }
}

template <class Access, class Move>
__device__ inline void write_patterns(const unsigned (&address)[patterns], int lane) {
#pragma unroll
    for (int j = 0; j < patterns; ++j) {
        unsigned word[Move::words];
#pragma unroll
        for (int part = 0; part < Move::words; ++part) {
            word[part] = (Access::word(lane, j) + part) * word_value;
        }
        Move::store(address[j], word);
    }
}

// `elements` accesses per lane, a multiple of 32. Called by all threads of a block of Warps warps.
template <class Access, class Move, int Warps>
__device__ inline void probe_banks(unsigned* memory, int* offsets, unsigned* sums, long long* cycles,
                                   int elements) {
    const int thread = threadIdx.x;
    const int lane = thread % 32;
    for (int word = thread; word < Access::words; word += Warps * 32) {
        memory[word] = Move::writes ? ~(word * word_value) : word * word_value;
    }

    const unsigned base = shared_address(memory);
    unsigned address[patterns];
#pragma unroll
    for (int j = 0; j < patterns; ++j) address[j] = base + 4 * Access::word(lane, j);
    for (int j = thread / 32; j < patterns; j += Warps) offsets[j * 32 + lane] = 4 * Access::word(lane, j);

    __syncthreads();  // the memory is filled
    const long long start = clock64();
    __syncthreads();  // no access before the clock is read
    unsigned sum = 0;
#pragma unroll 1
    for (int done = 0; done < elements; done += patterns) {
        if constexpr (Move::writes) {
            write_patterns<Access, Move>(address, lane);
        } else {
            read_patterns<Move>(address, sum);
        }
    }
    if constexpr (!Move::writes) sums[thread] = sum;
    __syncthreads();  // all warps have finished
    if (thread == 0) *cycles = clock64() - start;
    if constexpr (Move::writes) {
        read_patterns<Move>(address, sum);
        sums[thread] = elements / patterns * sum;
    }
}
