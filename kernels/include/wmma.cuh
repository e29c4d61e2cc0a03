// WMMA in PTX: a warp loads fragments of 16 x Depth and Depth x 16 elements from shared memory, multiplies them and stores
// their sums (PTX ISA, wmma.load, wmma.mma, wmma.store), Depth being 32 bytes of elements. A load takes one base and one
// stride for the whole warp, and which lane holds which element is not specified.
// In PTX rather than nvcuda::wmma, because NVRTC 13 lowers load_matrix_sync of bf16 and tf32 from shared memory to generic
// loads and register transposes; wmma.load.shared becomes the same ldmatrix for bf16 as for fp16.
#pragma once

#include "element.cuh"

// Words of a lane's fragments, and the instructions. Addresses are of shared memory, pitches in elements.
template <class Element, class Sum>
struct Wmma;

template <>
struct Wmma<__half, float> {
    struct Operand { unsigned word[8]; };
    struct Accumulator { float word[8] = {}; };

    __device__ static void load_a(Operand& a, unsigned address, int pitch) {
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3]), "=r"(a.word[4]),
                       "=r"(a.word[5]), "=r"(a.word[6]), "=r"(a.word[7])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void load_b(Operand& b, unsigned address, int pitch) {
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3]), "=r"(b.word[4]),
                       "=r"(b.word[5]), "=r"(b.word[6]), "=r"(b.word[7])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void multiply(Accumulator& c, const Operand& a, const Operand& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, "
            "{%0, %1, %2, %3, %4, %5, %6, %7};"
            : "+f"(c.word[0]), "+f"(c.word[1]), "+f"(c.word[2]), "+f"(c.word[3]), "+f"(c.word[4]), "+f"(c.word[5]),
              "+f"(c.word[6]), "+f"(c.word[7])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(a.word[4]), "r"(a.word[5]),
              "r"(a.word[6]), "r"(a.word[7]), "r"(b.word[0]), "r"(b.word[1]), "r"(b.word[2]), "r"(b.word[3]),
              "r"(b.word[4]), "r"(b.word[5]), "r"(b.word[6]), "r"(b.word[7]));
    }

    __device__ static void store(unsigned address, const Accumulator& c, int pitch) {
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;"
                     ::"r"(address), "f"(c.word[0]), "f"(c.word[1]), "f"(c.word[2]), "f"(c.word[3]), "f"(c.word[4]),
                       "f"(c.word[5]), "f"(c.word[6]), "f"(c.word[7]), "r"(pitch) : "memory");
    }
};

template <>
struct Wmma<__nv_bfloat16, float> {
    struct Operand { unsigned word[4]; };
    struct Accumulator { float word[8] = {}; };

    __device__ static void load_a(Operand& a, unsigned address, int pitch) {
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void load_b(Operand& b, unsigned address, int pitch) {
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void multiply(Accumulator& c, const Operand& a, const Operand& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k16.f32.bf16.bf16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3, %4, %5, %6, %7};"
            : "+f"(c.word[0]), "+f"(c.word[1]), "+f"(c.word[2]), "+f"(c.word[3]), "+f"(c.word[4]), "+f"(c.word[5]),
              "+f"(c.word[6]), "+f"(c.word[7])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
              "r"(b.word[2]), "r"(b.word[3]));
    }

    __device__ static void store(unsigned address, const Accumulator& c, int pitch) {
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;"
                     ::"r"(address), "f"(c.word[0]), "f"(c.word[1]), "f"(c.word[2]), "f"(c.word[3]), "f"(c.word[4]),
                       "f"(c.word[5]), "f"(c.word[6]), "f"(c.word[7]), "r"(pitch) : "memory");
    }
};

template <>
struct Wmma<float, float> {
    struct Operand { unsigned word[4]; };
    struct Accumulator { float word[8] = {}; };

    __device__ static void load_a(Operand& a, unsigned address, int pitch) {
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void load_b(Operand& b, unsigned address, int pitch) {
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k8.shared.tf32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void multiply(Accumulator& c, const Operand& a, const Operand& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k8.f32.tf32.tf32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3, %4, %5, %6, %7};"
            : "+f"(c.word[0]), "+f"(c.word[1]), "+f"(c.word[2]), "+f"(c.word[3]), "+f"(c.word[4]), "+f"(c.word[5]),
              "+f"(c.word[6]), "+f"(c.word[7])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]),
              "r"(b.word[2]), "r"(b.word[3]));
    }

    __device__ static void store(unsigned address, const Accumulator& c, int pitch) {
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k8.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;"
                     ::"r"(address), "f"(c.word[0]), "f"(c.word[1]), "f"(c.word[2]), "f"(c.word[3]), "f"(c.word[4]),
                       "f"(c.word[5]), "f"(c.word[6]), "f"(c.word[7]), "r"(pitch) : "memory");
    }
};

template <>
struct Wmma<__half, __half> {
    struct Operand { unsigned word[8]; };
    struct Accumulator { unsigned word[4] = {}; };

    __device__ static void load_a(Operand& a, unsigned address, int pitch) {
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3]), "=r"(a.word[4]),
                       "=r"(a.word[5]), "=r"(a.word[6]), "=r"(a.word[7])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void load_b(Operand& b, unsigned address, int pitch) {
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3]), "=r"(b.word[4]),
                       "=r"(b.word[5]), "=r"(b.word[6]), "=r"(b.word[7])
                     : "r"(address), "r"(pitch) : "memory");
    }

    __device__ static void multiply(Accumulator& c, const Operand& a, const Operand& b) {
        asm("wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
            "{%12, %13, %14, %15, %16, %17, %18, %19}, {%0, %1, %2, %3};"
            : "+r"(c.word[0]), "+r"(c.word[1]), "+r"(c.word[2]), "+r"(c.word[3])
            : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(a.word[4]), "r"(a.word[5]),
              "r"(a.word[6]), "r"(a.word[7]), "r"(b.word[0]), "r"(b.word[1]), "r"(b.word[2]), "r"(b.word[3]),
              "r"(b.word[4]), "r"(b.word[5]), "r"(b.word[6]), "r"(b.word[7]));
    }

    __device__ static void store(unsigned address, const Accumulator& c, int pitch) {
        asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%0], {%1, %2, %3, %4}, %5;"
                     ::"r"(address), "r"(c.word[0]), "r"(c.word[1]), "r"(c.word[2]), "r"(c.word[3]),
                       "r"(pitch) : "memory");
    }
};
