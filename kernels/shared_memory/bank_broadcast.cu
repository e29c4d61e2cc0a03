// A warp reads words that several of its lanes share; the block counts the cycles.
//
// The technique: broadcast (bank-conflicts). Lanes that access the same word are served in one wavefront.
// Only different words of one bank take several wavefronts. Pattern j starts j words further.
//
// Read: pattern_one_word, pattern_groups, pattern_bank_row or pattern_two_words. Warps: warps of the block.

#include "probe/bank_probe.cuh"

// A hash (xor, shift and odd multiplier; after xorshift) of 0 to 1023 to five bits: random, but the same in
// every run.
__host__ __device__ constexpr int random_bank(int lane, int pattern) {
    unsigned x = (pattern * 32 + lane + 1) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    return static_cast<int>(x >> 27);
}

// All lanes read one word.
struct pattern_one_word {
    static constexpr int words = patterns;
    __host__ __device__ static constexpr int word(int, int pattern) { return pattern; }
};

// Four groups of eight lanes read one word each, in banks of their own.
struct pattern_groups {
    static constexpr int words = 3 * 33 + patterns;
    __host__ __device__ static constexpr int word(int lane, int pattern) { return lane / 8 * 33 + pattern; }
};

// Lanes read random words of one row of 32 banks; some words are read by several lanes, some by none.
struct pattern_bank_row {
    static constexpr int words = 32 * patterns;
    __host__ __device__ static constexpr int word(int lane, int pattern) {
        return 32 * pattern + random_bank(lane, pattern);
    }
};

// For contrast: each half of the warp reads one word, but both words lie in one bank.
struct pattern_two_words {
    static constexpr int words = 32 + patterns;
    __host__ __device__ static constexpr int word(int lane, int pattern) { return lane / 16 * 32 + pattern; }
};

template <class Read, int Warps>
__global__ void __launch_bounds__(Warps * 32)
    bank_broadcast(int* __restrict__ offsets, unsigned* __restrict__ sums, long long* __restrict__ cycles,
                   int elements) {
    alignas(128) __shared__ unsigned memory[Read::words];
    probe_banks<Read, ReadVector<1>, Warps>(memory, offsets, sums, cycles, elements);
}
