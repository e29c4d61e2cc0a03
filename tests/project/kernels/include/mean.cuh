// The mean of a window from its sum.
#pragma once

#include "window.cuh"

template <typename T, int k>
__device__ T mean(T sum) {
  return sum / static_cast<T>(taps(k));
}
