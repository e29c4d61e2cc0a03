// Several 4-byte words moved by one instruction. The alignment is what lets the compiler emit 64- and 128-bit accesses.
#pragma once

template <int Width>
struct alignas(4 * Width) Words {
    static_assert(Width == 1 || Width == 2 || Width == 4, "one instruction moves 1, 2 or 4 words");
    float word[Width];
};

template <int Width>
__device__ inline Words<Width> load_words(const float* from) {
    return *reinterpret_cast<const Words<Width>*>(from);
}

template <int Width>
__device__ inline void store_words(float* to, const Words<Width>& words) {
    *reinterpret_cast<Words<Width>*>(to) = words;
}
