// Bulk copies (cp.async.bulk, sm_90; PTX ISA 9.7.9.25.4): one instruction of one thread starts the copy of a
// line of bytes into shared memory. No register and no other thread has a part in it. Both addresses and the
// number of bytes are multiples of 16. The bytes are counted at a barrier: see ptx/mbarrier.cuh.
#pragma once

#include "ptx/mbarrier.cuh"

// Copies `bytes` bytes from global memory to shared memory of this block, and counts them at `full`.
__device__ inline void bulk_load(void* to, const void* from, int bytes, Mbarrier& full) {
    asm volatile(
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&full))
        : "memory");
}
