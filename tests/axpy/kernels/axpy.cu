// y = a*x + y with one element a thread.

template <int Block>
__global__ void axpy(const float* __restrict__ x, float* __restrict__ y, float a, int elements) {
  const int i = blockIdx.x * Block + threadIdx.x;
  if (i < elements) y[i] = a * x[i] + y[i];
}
