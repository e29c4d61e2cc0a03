// Whole numbers. Offsets into matrices are 64-bit, because M * K may exceed 2^31; everything inside a tile is int.
#pragma once

using Index = long long;

__host__ __device__ constexpr int ceil_div(int numerator, int denominator) {
    return (numerator + denominator - 1) / denominator;
}

__host__ __device__ constexpr int lesser(int left, int right) { return left < right ? left : right; }

__host__ __device__ constexpr int greater(int left, int right) { return left < right ? right : left; }
