// Check of y = a*x + y in 64 bits: errors over what is added up, since inputs may be large.

#include "harness.cuh"

__device__ double axpy_error(const float* x, const float* before, const float* y, index_t elements, double a) {
  double worst = 0.0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    const double product = a * x[i], error = fabs(y[i] - (product + before[i]));
    raise(worst, error > 0.0 ? error / (fabs(product) + fabs(before[i])) : error);
  }
  return worst;
}

__global__ void compare_axpy(double* maximum, const float* x, const float* before, const float* y, index_t elements,
                             double a) {
  raise_to_block(maximum, axpy_error(x, before, y, elements, a));
}

__global__ void check_axpy(CheckResultSlot slot, const float* x, const float* before, const float* y, index_t elements,
                           double a) {
  write_check_result(slot, axpy_error(x, before, y, elements, a));
}
