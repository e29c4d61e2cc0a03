// Registers -> shared memory, four 8 x 8 matrices of 16-bit elements by one instruction of a warp (stmatrix, sm_90; PTX
// ISA 9.7.14.5.16): lane l gives the address of the 16-byte row l % 8 of matrix l / 8, and word i of every lane holds
// two neighbours of matrix i, in row l / 4 from column 2 (l % 4) on, as accumulators do.
#pragma once

#include "shared_address.cuh"

__device__ inline void store_matrices(void* row, const unsigned (&word)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}
