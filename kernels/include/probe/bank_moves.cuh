// The instructions that access shared memory, each as a Move: reads and writes of 1, 2 or 4 words a lane, and
// ldmatrix.
//
// A Move moves `words` words a lane; `writes` is whether it writes. All are volatile in PTX as well as in
// C++, so that neither compiler drops or joins accesses of the same address.
#pragma once

// Each lane reads Words words from its address on (PTX ISA 9.7.9.8, ld).
template <int Words>
struct ReadVector {
    static constexpr int words = Words;
    static constexpr bool writes = false;

    __device__ static void load(unsigned address, unsigned (&word)[Words]) {
        if constexpr (Words == 1) {
            asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(word[0]) : "r"(address) : "memory");
        } else if constexpr (Words == 2) {
            asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(word[0]), "=r"(word[1]) : "r"(address) : "memory");
        } else {
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                         : "r"(address)
                         : "memory");
        }
    }
};

// Each lane writes Words words from its address on (PTX ISA 9.7.9.11, st).
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

// The warp reads Count 8 x 8 matrices of 16-bit elements: lanes 8m to 8m + 7 address the 16-byte rows of
// matrix m, and lane l receives word l % 4 of row l / 4 of each (PTX ISA, ldmatrix).
template <int Count>
struct ReadMatrix {
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
                         : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                         : "r"(address)
                         : "memory");
        }
    }
};
