// What Clang needs to compile the kernels for AMD GPUs as they are. tools/hip_table.py includes this ahead of a
// kernel; no kernel includes it, so that nothing changes for NVRTC.
#pragma once

#include <hip/hip_runtime.h>

// A warp of the kernels is 32 lanes, half of an AMD wave. CUDA takes the lane's number modulo the width.
template <class T>
__device__ inline T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    return __shfl(value, lane & (width - 1), width);
}

// The mask of a shuffle means nothing here.
__device__ inline unsigned __activemask() {
    return 0xffffffffu;
}

// Lanes of a wave run together: only the compiler must keep the order.
__device__ inline void __syncwarp() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

template <class T>
__device__ inline void __stcs(T* to, T value) { __builtin_nontemporal_store(value.data, &to->data); }

__device__ inline void __trap() { __builtin_trap(); }

__device__ inline unsigned __cvta_generic_to_shared(const void* pointer) {
    return static_cast<unsigned>(reinterpret_cast<size_t>(pointer));
}

// The author of `hip-gemm` gives no launch bounds.
#if defined(WITHOUT_LAUNCH_BOUNDS)
#undef __launch_bounds__
#define __launch_bounds__(...)
#endif

// PTX becomes a mark in the ISA. A kernel that keeps one does not do its work, and hip_table.py refuses it.
// `asm volatile(...)` is caught by its second word, `asm(...)` by its first.
#define asm(...) asm volatile(__VA_ARGS__)
#define volatile(...) ("; PTX")
