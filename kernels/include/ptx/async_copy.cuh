// Global -> shared memory without registers in between (cp.async, sm_80 and later). A thread commits its
// copies in groups and waits for groups in the order of their commits. To see other threads' copies takes a
// barrier after the wait.
#pragma once

// Bytes bytes (4, 8 or 16; both addresses aligned to them) to an address in shared memory
// (shared_memory.cuh). Where `inside` is false the destination is filled with zeros and `from` is not read.
// Sixteen bytes bypass the L1.
template <int Bytes>
__device__ inline void copy_async(unsigned to, const void* from, bool inside) {
    const int read = inside ? Bytes : 0;
    if constexpr (Bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
                     "r"(read)
                     : "memory");
    }
}

// Ends the group of the copies this thread has started since the last commit.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most Pending of this thread's newest groups are still under way.
template <int Pending>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
