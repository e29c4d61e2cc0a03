// Extent of a window that reaches k elements to the right.
#pragma once

__device__ constexpr int taps(int k) { return k + 1; }
