// A row a warp, in three passes, compiled to a cubin by nvcc: see docs/cubins.md.

#include <cfloat>

extern "C" __global__ void softmax(const float* x, float* y, int columns) {
  const float* row = x + size_t(blockIdx.x) * columns;
  float largest = -FLT_MAX;
  for (int i = threadIdx.x; i < columns; i += 32) largest = fmaxf(largest, row[i]);
  for (int lane = 16; lane; lane /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lane));
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 32) sum += expf(row[i] - largest);
  for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  for (int i = threadIdx.x; i < columns; i += 32) y[size_t(blockIdx.x) * columns + i] = expf(row[i] - largest) / sum;
}
