// wgmma with A in registers (sm_90a; PTX ISA 9.7.15): D += A @ B with A of 64 x 32 bytes and D of 64 x N in
// the registers of 128 threads, and B (32 bytes x N) in shared memory, as in wgmma.cuh. A's elements may be
// computed on their way, and only B takes bandwidth of shared memory: half of it, whatever N is. Until the
// wgmma is finished nobody must write to the registers of A. Of TF32 the lower 13 bits are ignored.
//
// A thread holds four words of A, in two rows eight apart and two columns of words four apart, as for
// mma.sync. ldmatrix reads them: a row of four 32-bit elements is one of eight 16-bit ones. Of 16-bit
// elements they are eight neighbouring accumulators of the thread, packed in pairs. A word of 8-bit elements
// is four neighbours in a row, of which a thread's accumulators have no more than two.
#pragma once

#include "mma/operand_tile.cuh"
#include "ptx/shared_memory.cuh"

// WgmmaRegisters<Element, N>::wgmma<NMajorB>(d, a, b, add): d = a @ b + (add ? d : 0), as Wgmma.
template <class Element, int N>
struct WgmmaRegisters;

#define LADDER_WGMMA_REGISTERS(ELEMENT, TYPES, N, NAMES, FLOATS, A, B, ADD, MAJOR, ...)              \
    template <>                                                                                      \
    struct WgmmaRegisters<ELEMENT, N> {                                                              \
        template <bool NMajorB>                                                                      \
        __device__ static void wgmma(float (&d)[N / 2], const unsigned (&a)[4],                      \
                                     unsigned long long b, int add) {                                \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                        \
                         "wgmma.mma_async.sync.aligned.m64n" #N TYPES                                \
                         " {" NAMES "}, " A ", " B ", add, 1, 1" MAJOR ";\n}"                        \
                         : FLOATS(d)                                                                 \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                       \
                           "r"(add) __VA_ARGS__);                                                    \
        }                                                                                            \
    };
#define LADDER_WGMMA_REGISTERS_TF32(N, NAMES, FLOATS, A, B, ADD) \
    LADDER_WGMMA_REGISTERS(Tf32, "k8.f32.tf32.tf32", N, NAMES, FLOATS, A, B, ADD, "")
LADDER_WGMMA_REGISTERS_TF32(64, LADDER_NAMES_32, LADDER_FLOATS_32, "{%32, %33, %34, %35}", "%36", "%37")
LADDER_WGMMA_REGISTERS_TF32(96, LADDER_NAMES_48, LADDER_FLOATS_48, "{%48, %49, %50, %51}", "%52", "%53")
LADDER_WGMMA_REGISTERS_TF32(128, LADDER_NAMES_64, LADDER_FLOATS_64, "{%64, %65, %66, %67}", "%68", "%69")
LADDER_WGMMA_REGISTERS_TF32(160, LADDER_NAMES_80, LADDER_FLOATS_80, "{%80, %81, %82, %83}", "%84", "%85")
LADDER_WGMMA_REGISTERS_TF32(176, LADDER_NAMES_88, LADDER_FLOATS_88, "{%88, %89, %90, %91}", "%92", "%93")
LADDER_WGMMA_REGISTERS_TF32(192, LADDER_NAMES_96, LADDER_FLOATS_96, "{%96, %97, %98, %99}", "%100", "%101")
#define LADDER_WGMMA_REGISTERS_16(N, NAMES, FLOATS, A, B, ADD, MAJOR)                                \
    LADDER_WGMMA_REGISTERS(__nv_bfloat16, "k16.f32.bf16.bf16", N, NAMES, FLOATS, A, B, ADD,          \
                           ", " MAJOR, , "n"(NMajorB ? 1 : 0))                                       \
    LADDER_WGMMA_REGISTERS(__half, "k16.f32.f16.f16", N, NAMES, FLOATS, A, B, ADD,                   \
                           ", " MAJOR, , "n"(NMajorB ? 1 : 0))
LADDER_WGMMA_REGISTERS_16(64, LADDER_NAMES_32, LADDER_FLOATS_32, "{%32, %33, %34, %35}", "%36", "%37", "%38")
LADDER_WGMMA_REGISTERS_16(128, LADDER_NAMES_64, LADDER_FLOATS_64, "{%64, %65, %66, %67}", "%68", "%69",
                          "%70")
LADDER_WGMMA_REGISTERS_16(256, LADDER_NAMES_128, LADDER_FLOATS_128, "{%128, %129, %130, %131}", "%132",
                          "%133", "%134")
#define LADDER_WGMMA_REGISTERS_8(N, NAMES, FLOATS, A, B, ADD) \
    LADDER_WGMMA_REGISTERS(E4m3, "k32.f32.e4m3.e4m3", N, NAMES, FLOATS, A, B, ADD, "")
LADDER_WGMMA_REGISTERS_8(128, LADDER_NAMES_64, LADDER_FLOATS_64, "{%64, %65, %66, %67}", "%68", "%69")
LADDER_WGMMA_REGISTERS_8(256, LADDER_NAMES_128, LADDER_FLOATS_128, "{%128, %129, %130, %131}", "%132", "%133")

// Keeps the compiler from writing to A's registers ahead of the wait before it, which does not name them. No
// instruction.
template <int Steps>
__device__ inline void fence_registers(unsigned (&a)[Steps][4]) {
#pragma unroll
    for (auto& step : a) {
#pragma unroll
        for (unsigned& word : step) asm volatile("" : "+r"(word)::"memory");
    }
}

// The thread's four elements of A for wgmma number `step` of a tile, of the 64 rows from `row` on. The
// swizzle puts the eight rows of a matrix into different banks.
template <int BM>
__device__ inline void load_fragment(const OperandTile<Tf32, Major::k, BM>& a, int row, int step, int thread,
                                     unsigned (&word)[4]) {
    const int line = row + thread / 32 * 16 + thread % 16;
    ldmatrix(shared_address(a.byte) + swizzled(line, step * 32 + thread % 32 / 16 * 16), word);
}
