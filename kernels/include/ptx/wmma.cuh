// WMMA in PTX: a warp loads fragments of 16 x Depth and Depth x 16 elements from shared memory, multiplies
// them and stores their accumulators (PTX ISA, wmma.load, wmma.mma, wmma.store), Depth being 32 bytes of
// elements. A load takes one base and one stride for the whole warp, and which lane holds which element is
// not specified. In PTX rather than nvcuda::wmma, because NVRTC 13 lowers load_matrix_sync of bf16 and tf32
// from shared memory to generic loads and register transposes; wmma.load.shared becomes the same ldmatrix for
// bf16 as for fp16.
#pragma once

#include "types/element.cuh"

// The words of a fragment, as operands of an instruction.
#define LADDER_WORDS_4(constraint, word) \
    constraint(word[0]), constraint(word[1]), constraint(word[2]), constraint(word[3])
#define LADDER_WORDS_8(constraint, word)                                                             \
    LADDER_WORDS_4(constraint, word), constraint(word[4]), constraint(word[5]), constraint(word[6]), \
        constraint(word[7])

// A lane's words of a fragment of A or B. Addresses are of shared memory, pitches in elements.
template <class Element>
struct WmmaFragment;

template <>
struct WmmaFragment<__half> {
    unsigned word[8];

    __device__ void load_a(unsigned address, int pitch) {
        asm volatile(
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
            : LADDER_WORDS_8("=r", word)
            : "r"(address), "r"(pitch)
            : "memory");
    }

    __device__ void load_b(unsigned address, int pitch) {
        asm volatile(
            "wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
            : LADDER_WORDS_8("=r", word)
            : "r"(address), "r"(pitch)
            : "memory");
    }
};

template <>
struct WmmaFragment<__nv_bfloat16> {
    unsigned word[4];

    __device__ void load_a(unsigned address, int pitch) {
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : LADDER_WORDS_4("=r", word) : "r"(address), "r"(pitch) : "memory");
    }

    __device__ void load_b(unsigned address, int pitch) {
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : LADDER_WORDS_4("=r", word) : "r"(address), "r"(pitch) : "memory");
    }
};

template <>
struct WmmaFragment<float> {
    unsigned word[4];

    __device__ void load_a(unsigned address, int pitch) {
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;"
                     : LADDER_WORDS_4("=r", word) : "r"(address), "r"(pitch) : "memory");
    }

    __device__ void load_b(unsigned address, int pitch) {
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;"
                     : LADDER_WORDS_4("=r", word) : "r"(address), "r"(pitch) : "memory");
    }
};

// A lane's words of a fragment of accumulators; the fragments of A and B are Depth elements deep.
template <class Accumulator, int Depth>
struct WmmaAccumulator;

template <>
struct WmmaAccumulator<float, 16> {
    float word[8] = {};

    __device__ void mma(const WmmaFragment<__half>& a, const WmmaFragment<__half>& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, "
            "{%0, %1, %2, %3, %4, %5, %6, %7};"
            : LADDER_WORDS_8("+f", word) : LADDER_WORDS_8("r", a.word), LADDER_WORDS_8("r", b.word));
    }

    __device__ void mma(const WmmaFragment<__nv_bfloat16>& a, const WmmaFragment<__nv_bfloat16>& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k16.f32.bf16.bf16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3, %4, %5, %6, %7};"
            : LADDER_WORDS_8("+f", word) : LADDER_WORDS_4("r", a.word), LADDER_WORDS_4("r", b.word));
    }

    __device__ void store(unsigned address, int pitch) const {
        asm volatile(
            "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, "
            "%9;" ::"r"(address),
            LADDER_WORDS_8("f", word), "r"(pitch)
            : "memory");
    }
};

template <>
struct WmmaAccumulator<float, 8> {
    float word[8] = {};

    __device__ void mma(const WmmaFragment<float>& a, const WmmaFragment<float>& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k8.f32.tf32.tf32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3, %4, %5, %6, %7};"
            : LADDER_WORDS_8("+f", word) : LADDER_WORDS_4("r", a.word), LADDER_WORDS_4("r", b.word));
    }

    __device__ void store(unsigned address, int pitch) const {
        asm volatile(
            "wmma.store.d.sync.aligned.row.m16n16k8.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;" ::
                "r"(address),
            LADDER_WORDS_8("f", word), "r"(pitch)
            : "memory");
    }
};

template <>
struct WmmaAccumulator<__half, 16> {
    unsigned word[4] = {};

    __device__ void mma(const WmmaFragment<__half>& a, const WmmaFragment<__half>& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15, %16, %17, %18, %19}, {%0, %1, %2, %3};"
            : LADDER_WORDS_4("+r", word) : LADDER_WORDS_8("r", a.word), LADDER_WORDS_8("r", b.word));
    }

    __device__ void store(unsigned address, int pitch) const {
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%0], {%1, %2, %3, %4}, %5;"
                     ::"r"(address), LADDER_WORDS_4("r", word), "r"(pitch) : "memory");
    }
};
