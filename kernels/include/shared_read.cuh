// Reads of shared memory by 32-bit address. They are volatile and clobber memory, because the compiler does not see who
// writes these bytes.
#pragma once

// Four 8 x 8 matrices of 16-bit elements: lanes 8i to 8i + 7 address the 16-byte rows of matrix i, and lane l receives
// elements 2 * (l % 4) and the next of row l / 4 of each (PTX ISA, ldmatrix). Of 32-bit elements such a row holds four,
// and lane l receives element l % 4.
__device__ inline void load_matrices(unsigned address, unsigned (&word)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "r"(address) : "memory");
}

// The same with each matrix transposed: lane l receives elements l / 4 of rows 2 * (l % 4) and the next.
__device__ inline void load_matrices_transposed(unsigned address, unsigned (&word)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "r"(address) : "memory");
}

// Two words, the lane's own (PTX ISA, ld).
__device__ inline void load_pair(unsigned address, unsigned& first, unsigned& second) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
}
