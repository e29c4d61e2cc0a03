// alpha * sum. As in BLAS, alpha == 0 gives zero, whatever was summed up, NaN included.
#pragma once

__device__ inline float scaled(float sum, float alpha) { return alpha == 0.0f ? 0.0f : alpha * sum; }
