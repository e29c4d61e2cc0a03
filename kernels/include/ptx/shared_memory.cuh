// Accesses to shared memory by 32-bit address, one wrapper per instruction, named after it. They are volatile
// and clobber memory, because the compiler does not see who else writes or reads these bytes.
#pragma once

// The 32-bit address of a pointer into shared memory, as instructions in PTX take it.
__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Four 8 x 8 matrices of 16-bit elements: lanes 8i to 8i + 7 address the 16-byte rows of matrix i, and lane l
// receives elements 2 * (l % 4) and the next of row l / 4 of each (PTX ISA, ldmatrix). Of 32-bit elements
// such a row holds four, and lane l receives element l % 4.
__device__ inline void ldmatrix(unsigned address, unsigned (&word)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "r"(address) : "memory");
}

// The same with each matrix transposed: lane l receives elements l / 4 of rows 2 * (l % 4) and the next.
__device__ inline void ldmatrix_trans(unsigned address, unsigned (&word)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "r"(address) : "memory");
}

// Two words, the lane's own (PTX ISA, ld).
__device__ inline void ld_shared_v2(unsigned address, unsigned& first, unsigned& second) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
}

// Registers -> shared memory, four 8 x 8 matrices of 16-bit elements by one instruction of a warp (stmatrix,
// sm_90; PTX ISA 9.7.14.5.16): lane l gives the address of the 16-byte row l % 8 of matrix l / 8, and word i
// of every lane holds two elements of matrix i, in row l / 4 from column 2 (l % 4) on, as accumulators do.
__device__ inline void stmatrix(void* row, const unsigned (&word)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
        "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
        : "memory");
}
