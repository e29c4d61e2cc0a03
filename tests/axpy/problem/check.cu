// Check of y = a*x + y in 64 bits.

#include "harness.cuh"

__global__ void compare_axpy(double* maximum, unsigned long long* count, const float* x, const float* before,
                             const float* y, index_t elements, double a) {
  double worst = 0.0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    const double error = fabs(y[i] - (a * x[i] + before[i]));
    if (!(error <= worst)) worst = error == error ? error : 1e300;
  }
  raise_to_block(maximum, worst);
}
