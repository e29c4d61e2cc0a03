// Whole numbers, unknown to the compiler where they should be, and choices at compile time. Offsets into
// matrices are 64-bit, because M * K may exceed 2^31; everything inside a tile is int.
#pragma once

using Index = long long;

__host__ __device__ constexpr int ceil_div(int numerator, int denominator) {
    return (numerator + denominator - 1) / denominator;
}

// CUDA's own min and max are no constant expressions.
__host__ __device__ constexpr int const_min(int left, int right) { return left < right ? left : right; }

__host__ __device__ constexpr int const_max(int left, int right) { return left < right ? right : left; }

// Returns value but hides it from the optimiser: expressions made from it are computed again where they are
// used, and not held in registers across a loop.
__device__ inline int hide_from_compiler(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

// The greatest common divisor.
__host__ __device__ constexpr int gcd(int left, int right) {
    return right == 0 ? left : gcd(right, left % right);
}

// One of two types; the standard's, whose header NVRTC does not have.
template <bool Yes, class Then, class Else>
struct Conditional {
    using Type = Then;
};
template <class Then, class Else>
struct Conditional<false, Then, Else> {
    using Type = Else;
};
template <bool Yes, class Then, class Else>
using conditional_t = typename Conditional<Yes, Then, Else>::Type;
