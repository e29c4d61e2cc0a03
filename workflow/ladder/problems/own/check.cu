// Check of a problem of one's own: outputs against an answer in fp64, which may lie off by a tolerance.

#include "harness.cuh"

namespace {

// Over what is allowed. NaN and infinity are right only where they are expected; elsewhere the error is NaN or infinity.
__device__ double error_of(double y, double expected, double rtol, double atol) {
  if (y == expected || (y != y && expected != expected)) return 0.0;
  return fabs(y - expected) / (atol + rtol * fabs(expected));
}

}  // namespace

// Ahead of the answer: an input as it was drawn, so that what a kernel wrote there does not show. An output, which was
// not drawn, becomes what no result is near to, for a module that writes nothing.
template <class T> __global__ void prepare_fp64(double* data, index_t elements, Key key, int kind) {
  constexpr int together = drawn_together<T>;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    data[i] = kind < 0 ? 1e300 : to_double(drawn<T>(philox(key, i / together), i % together, kind));
  }
}

template <class T>
__global__ void compare_output(double* worst, const T* output, const double* expected, index_t elements, double rtol,
                               double atol) {
  double largest = 0.0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    raise(largest, error_of(to_double(output[i]), expected[i], rtol, atol));
  }
  raise_to_block(worst, largest);
}

// Behind the last output, whatever its type.
template <class> __global__ void take_worst(double* maximum, const double* worst) { raise_to_block(maximum, *worst); }
template <class> __global__ void check_worst(CheckResultSlot slot, const double* worst) {
  write_check_result(slot, *worst);
}
