// The mean of a window from its sum.
#pragma once

#include "window.cuh"

template <typename T, int radius>
__device__ T mean(T sum) {
  return sum / static_cast<T>(taps(radius));
}
