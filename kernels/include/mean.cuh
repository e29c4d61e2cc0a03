// Mean of Taps values from their sum. int32 divides as C++ does, towards zero, and must be exact. fp32 multiplies by
// the reciprocal, which rounds once more than a division. A division would take a dozen instructions and hide
// the difference between the kernels.
#pragma once

template <int Taps>
__device__ inline int mean(int sum) { return sum / Taps; }

template <int Taps>
__device__ inline float mean(float sum) { return sum * (1.0f / Taps); }
