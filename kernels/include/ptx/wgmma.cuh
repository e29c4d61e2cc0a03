// Matrix multiply-accumulate of warpgroups (wgmma, sm_90a; PTX ISA 9.7.15): D += A @ B with D of 64 x N in
// the registers of 128 threads. The tensor cores read A (64 x 32 bytes) and B (32 bytes x N) from shared
// memory. wgmma are asynchronous: a thread starts several, commits them as a group and waits for the group.
// Until then it must not touch D, and nobody may write to A or B.
//
// Each thread holds pairs side by side in two rows of D, eight rows apart; see accumulator_row and
// accumulator_column.
#pragma once

#include "types/element.cuh"

// Row and column of D that register i of a thread of the warpgroup holds (PTX ISA, figure of wgmma's fragment
// D).
__host__ __device__ constexpr int accumulator_row(int thread, int i) {
    return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
__host__ __device__ constexpr int accumulator_column(int thread, int i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

// Orders accesses to the registers of D, and earlier writes to shared memory, before the wgmma that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends the group of the wgmma started since the last commit.
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most Pending of the newest groups are unfinished.
template <int Pending>
__device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from reading D ahead of the wait before it, which does not name D's registers. No
// instruction. By index: inside of another loop, one over the range is not unrolled, and D goes to memory.
template <int Registers>
__device__ inline void fence_registers(float (&d)[Registers]) {
#pragma unroll
    for (int i = 0; i < Registers; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Waits for all groups, and hands over the registers of D that they wrote.
template <int Fragments, int Registers>
__device__ inline void wgmma_wait_all(float (&accumulator)[Fragments][Registers]) {
    wgmma_wait<0>();
#pragma unroll
    for (auto& fragment : accumulator) fence_registers(fragment);
}

// Needed where K may be 0, and ahead of promotion. Elsewhere the first wgmma of a tile overwrites D.
template <int Fragments, int Registers>
__device__ inline void clear(float (&accumulator)[Fragments][Registers]) {
    for (auto& fragment : accumulator) {
        for (float& value : fragment) value = 0.0f;
    }
}

// The descriptor of an operand in shared memory with 128-byte swizzle, from the address of its first element:
// offsets in units of sixteen bytes, swizzle mode 1 of four in the two highest bits (PTX ISA, matrix
// descriptor).
__host__ __device__ constexpr unsigned long long swizzled_descriptor(unsigned address, int leading_bytes,
                                                                     int stride_bytes) {
    return (address & 0x3ffff) / 16 | static_cast<unsigned long long>(leading_bytes / 16) << 16 |
           static_cast<unsigned long long>(stride_bytes / 16) << 32 | 1ull << 62;
}

// The descriptor of what lies `bytes`, a multiple of sixteen, further on in the same 256 KiB: the address is
// in the low word.
__host__ __device__ constexpr unsigned long long moved(unsigned long long descriptor, int bytes) {
    return descriptor >> 32 << 32 | (static_cast<unsigned>(descriptor) + bytes / 16);
}

// Wgmma<Element, N>::wgmma<NMajorB>(d, a, b, add): d = a @ b + (add ? d : 0). NMajorB says that neighbours in
// memory are neighbours along N; only 16-bit elements may be so.
template <class Element, int N>
struct Wgmma;

// The registers of D as operands of the instruction, and their names in its text, eight more at a time.
#define LADDER_FLOATS(d, i)                                         \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]),     \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define LADDER_FLOATS_8(d) LADDER_FLOATS(d, 0)
#define LADDER_FLOATS_16(d) LADDER_FLOATS_8(d), LADDER_FLOATS(d, 8)
#define LADDER_FLOATS_24(d) LADDER_FLOATS_16(d), LADDER_FLOATS(d, 16)
#define LADDER_FLOATS_32(d) LADDER_FLOATS_24(d), LADDER_FLOATS(d, 24)
#define LADDER_FLOATS_40(d) LADDER_FLOATS_32(d), LADDER_FLOATS(d, 32)
#define LADDER_FLOATS_48(d) LADDER_FLOATS_40(d), LADDER_FLOATS(d, 40)
#define LADDER_FLOATS_56(d) LADDER_FLOATS_48(d), LADDER_FLOATS(d, 48)
#define LADDER_FLOATS_64(d) LADDER_FLOATS_56(d), LADDER_FLOATS(d, 56)
#define LADDER_FLOATS_72(d) LADDER_FLOATS_64(d), LADDER_FLOATS(d, 64)
#define LADDER_FLOATS_80(d) LADDER_FLOATS_72(d), LADDER_FLOATS(d, 72)
#define LADDER_FLOATS_88(d) LADDER_FLOATS_80(d), LADDER_FLOATS(d, 80)
#define LADDER_FLOATS_96(d) LADDER_FLOATS_88(d), LADDER_FLOATS(d, 88)
#define LADDER_FLOATS_104(d) LADDER_FLOATS_96(d), LADDER_FLOATS(d, 96)
#define LADDER_FLOATS_112(d) LADDER_FLOATS_104(d), LADDER_FLOATS(d, 104)
#define LADDER_FLOATS_120(d) LADDER_FLOATS_112(d), LADDER_FLOATS(d, 112)
#define LADDER_FLOATS_128(d) LADDER_FLOATS_120(d), LADDER_FLOATS(d, 120)
#define LADDER_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LADDER_NAMES_16 LADDER_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LADDER_NAMES_24 LADDER_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LADDER_NAMES_32 LADDER_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LADDER_NAMES_40 LADDER_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define LADDER_NAMES_48 LADDER_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define LADDER_NAMES_56 LADDER_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define LADDER_NAMES_64 LADDER_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define LADDER_NAMES_72 LADDER_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define LADDER_NAMES_80 LADDER_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define LADDER_NAMES_88 LADDER_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define LADDER_NAMES_96 LADDER_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define LADDER_NAMES_104 LADDER_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define LADDER_NAMES_112 LADDER_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define LADDER_NAMES_120 LADDER_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define LADDER_NAMES_128 LADDER_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define LADDER_WGMMA(ELEMENT, TYPES, N, NAMES, FLOATS, A, B, ADD, MAJOR, ...)                        \
    template <>                                                                                      \
    struct Wgmma<ELEMENT, N> {                                                                       \
        template <bool NMajorB>                                                                      \
        __device__ static void wgmma(float (&d)[N / 2], unsigned long long a, unsigned long long b,  \
                                     int add) {                                                      \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                        \
                         "wgmma.mma_async.sync.aligned.m64n" #N TYPES                                \
                         " {" NAMES "}, " A ", " B ", add, 1, 1" MAJOR ";\n}"                        \
                         : FLOATS(d)                                                                 \
                         : "l"(a), "l"(b), "r"(add) __VA_ARGS__);                                    \
        }                                                                                            \
    };
#define LADDER_WGMMA_ALL(N, NAMES, FLOATS, A, B, ADD, MAJOR)                                         \
    LADDER_WGMMA(__nv_bfloat16, "k16.f32.bf16.bf16", N, NAMES, FLOATS, A, B, ADD, ", 0, " MAJOR, ,   \
                 "n"(NMajorB ? 1 : 0))                                                               \
    LADDER_WGMMA(__half, "k16.f32.f16.f16", N, NAMES, FLOATS, A, B, ADD, ", 0, " MAJOR, ,            \
                 "n"(NMajorB ? 1 : 0))                                                               \
    LADDER_WGMMA(Tf32, "k8.f32.tf32.tf32", N, NAMES, FLOATS, A, B, ADD, "")                          \
    LADDER_WGMMA(E4m3, "k32.f32.e4m3.e4m3", N, NAMES, FLOATS, A, B, ADD, "")
LADDER_WGMMA_ALL(16, LADDER_NAMES_8, LADDER_FLOATS_8, "%8", "%9", "%10", "%11")
LADDER_WGMMA_ALL(32, LADDER_NAMES_16, LADDER_FLOATS_16, "%16", "%17", "%18", "%19")
LADDER_WGMMA_ALL(48, LADDER_NAMES_24, LADDER_FLOATS_24, "%24", "%25", "%26", "%27")
LADDER_WGMMA_ALL(64, LADDER_NAMES_32, LADDER_FLOATS_32, "%32", "%33", "%34", "%35")
LADDER_WGMMA_ALL(80, LADDER_NAMES_40, LADDER_FLOATS_40, "%40", "%41", "%42", "%43")
LADDER_WGMMA_ALL(96, LADDER_NAMES_48, LADDER_FLOATS_48, "%48", "%49", "%50", "%51")
LADDER_WGMMA_ALL(112, LADDER_NAMES_56, LADDER_FLOATS_56, "%56", "%57", "%58", "%59")
LADDER_WGMMA_ALL(128, LADDER_NAMES_64, LADDER_FLOATS_64, "%64", "%65", "%66", "%67")
LADDER_WGMMA_ALL(144, LADDER_NAMES_72, LADDER_FLOATS_72, "%72", "%73", "%74", "%75")
LADDER_WGMMA_ALL(160, LADDER_NAMES_80, LADDER_FLOATS_80, "%80", "%81", "%82", "%83")
LADDER_WGMMA_ALL(176, LADDER_NAMES_88, LADDER_FLOATS_88, "%88", "%89", "%90", "%91")
LADDER_WGMMA_ALL(192, LADDER_NAMES_96, LADDER_FLOATS_96, "%96", "%97", "%98", "%99")
LADDER_WGMMA_ALL(208, LADDER_NAMES_104, LADDER_FLOATS_104, "%104", "%105", "%106", "%107")
LADDER_WGMMA_ALL(224, LADDER_NAMES_112, LADDER_FLOATS_112, "%112", "%113", "%114", "%115")
LADDER_WGMMA_ALL(240, LADDER_NAMES_120, LADDER_FLOATS_120, "%120", "%121", "%122", "%123")
LADDER_WGMMA_ALL(256, LADDER_NAMES_128, LADDER_FLOATS_128, "%128", "%129", "%130", "%131")
