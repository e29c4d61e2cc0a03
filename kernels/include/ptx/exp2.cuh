// 2^x by one instruction, MUFU.EX2 (ex2, PTX ISA 9.7.3.21). What is below 2^-126 becomes zero (.ftz): exp2f
// and __expf keep such numbers, for two products and a comparison more. 2^-inf is zero.
#pragma once

__device__ inline float exp2_to_zero(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

__device__ inline float exp_to_zero(float x) { return exp2_to_zero(x * 1.44269504f); }
