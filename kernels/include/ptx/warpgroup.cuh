// Warpgroups (sm_90a): four neighbouring warps, 128 threads, that issue wgmma together.
#pragma once

constexpr int warpgroup_threads = 128;

// `value`, which is the same in all lanes of a warp, as read from lane 0. From that the compiler knows that
// it is uniform, and that branches on it do not diverge. All lanes must call it.
__device__ inline int warp_uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }

// Moves registers between warpgroups (setmaxnreg, PTX ISA 9.7.19.5): a warpgroup that only starts copies
// gives up registers, and those that hold accumulators take them. Count is a multiple of 8. The compiler
// ignores it (C7508) unless the kernel is bounded to one block per multiprocessor and each role is one
// branch.
template <int Count>
__device__ inline void shrink_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

template <int Count>
__device__ inline void grow_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)); }

// The 65536 registers of a multiprocessor, shared between one warpgroup that copies and Consumers that
// multiply.
template <int Consumers>
constexpr int producer_registers = Consumers >= 3 ? 32 : 40;

template <int Consumers>
constexpr int consumer_registers = Consumers == 4 ? 112 : Consumers == 3 ? 160 : 232;

// Whether this is the one thread of a warpgroup that acts for it; it is always the same. The hardware chooses
// it (elect.sync, PTX ISA 9.7.13.14). From that the compiler knows that a single thread goes on and that its
// values are uniform, which it does not know after a comparison of thread numbers. Call it in the branch's
// condition: from a stored result the compiler knows nothing.
__device__ inline bool one_of_warpgroup(int thread) {
    if (thread >= 32) return false;
    int chosen;
    asm volatile("{\n.reg .pred chosen;\nelect.sync _|chosen, 0xffffffff;\nselp.b32 %0, 1, 0, chosen;\n}"
                 : "=r"(chosen));
    return chosen;
}

// Barriers of some of the block's warpgroups, by number: there are sixteen, and __syncthreads uses number 0.
template <int Warpgroups = 1>
__device__ inline void warpgroup_barrier(int number) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(Warpgroups * warpgroup_threads) : "memory");
}

// Arrives at a barrier at which others wait, and goes on.
template <int Warpgroups>
__device__ inline void warpgroup_arrive(int number) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(Warpgroups * warpgroup_threads) : "memory");
}
