// Repeats one shared-memory access of any kind and times it: vector reads, vector writes and ldmatrix. The contract is that
// of bank_probe.cuh, which reads single words; its probe is kept as it is, since published cubins are made of it.
//
// An Access says which word lane l addresses in pattern j: `Access::word(l, j)`, 0 <= j < 32, with all its words below
// `Access::words`. Every warp makes the same accesses. A Move is the instruction. A Move that writes gives word w the value
// that a read expects there, over memory that held another; after the clock was stopped, each lane reads its words back.
#pragma once

#include "bank_probe.cuh"

constexpr unsigned word_value = 2654435761u;

// Each lane reads Words words from its address on.
template <int Words>
struct ReadVector {
    static constexpr int words = Words;
    static constexpr bool writes = false;

    __device__ static void load(unsigned address, unsigned (&word)[Words]) {
        if constexpr (Words == 1) {
            word[0] = load_shared(address);
        } else if constexpr (Words == 2) {
            asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(word[0]), "=r"(word[1]) : "r"(address) : "memory");
        } else {
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "r"(address) : "memory");
        }
    }
};

// Each lane writes Words words from its address on (PTX ISA, st).
template <int Words>
struct WriteVector : ReadVector<Words> {
    static constexpr bool writes = true;

    __device__ static void store(unsigned address, const unsigned (&word)[Words]) {
        if constexpr (Words == 1) {
            asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(address), "r"(word[0]) : "memory");
        } else if constexpr (Words == 2) {
            asm volatile("st.volatile.shared.v2.u32 [%0], {%1, %2};"
                         ::"r"(address), "r"(word[0]), "r"(word[1]) : "memory");
        } else {
            asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                         ::"r"(address), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
        }
    }
};

// The warp reads Count 8 x 8 matrices of 16-bit elements: lanes 8m to 8m + 7 address the 16-byte rows of matrix m, and
// lane l receives word l % 4 of row l / 4 of each (PTX ISA, ldmatrix).
template <int Count>
struct ReadMatrices {
    static constexpr int words = Count;
    static constexpr bool writes = false;

    __device__ static void load(unsigned address, unsigned (&word)[Count]) {
        if constexpr (Count == 1) {
            asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                         : "=r"(word[0]) : "r"(address) : "memory");
        } else if constexpr (Count == 2) {
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                         : "=r"(word[0]), "=r"(word[1]) : "r"(address) : "memory");
        } else {
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "r"(address) : "memory");
        }
    }
};

// Reads all patterns once and adds the words to `sum`. 32 registers' worth of independent loads are in flight.
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
        for (int part = 0; part < Move::words; ++part) word[part] = (Access::word(lane, j) + part) * word_value;
        Move::store(address[j], word);
    }
}

// `elements` accesses per lane, a multiple of 32. Called by all threads of a block of Warps warps.
template <class Access, class Move, int Warps>
__device__ inline void probe_moves(unsigned* memory, int* offsets, unsigned* sums, long long* cycles, int elements) {
    const int thread = threadIdx.x;
    const int lane = thread % 32;
    for (int word = thread; word < Access::words; word += Warps * 32) {
        memory[word] = Move::writes ? ~(word * word_value) : word * word_value;
    }

    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    unsigned address[patterns];
#pragma unroll
    for (int j = 0; j < patterns; ++j) address[j] = base + 4 * Access::word(lane, j);
    for (int j = thread / 32; j < patterns; j += Warps) offsets[j * 32 + lane] = 4 * Access::word(lane, j);

    __syncthreads();  // the memory is filled
    const long long start = clock64();
    __syncthreads();  // nobody accesses it before the clock is taken
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
    __syncthreads();  // everybody has finished
    if (thread == 0) *cycles = clock64() - start;
    if constexpr (Move::writes) {
        read_patterns<Move>(address, sum);
        sums[thread] = elements / patterns * sum;
    }
}
