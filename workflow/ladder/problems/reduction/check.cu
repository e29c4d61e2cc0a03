// Checks of a sum. There is one output, so a sample of it would say nothing: the sum of all that was drawn is worked out
// anew in fp64 by the generator, which reads neither the input nor anything else that a kernel could have written.

#include "harness.cuh"

namespace {

// Over the sum of magnitudes. NaN, as the poison is, stays NaN.
template <class T> __device__ double error_of_sum(const double* sums, const T* output) {
  const double error = fabs(*output - sums[0]);
  return error > 0.0 ? error / sums[1] : error;
}

}  // namespace

// Adds the sum of what was drawn to sums[0], and that of the magnitudes to sums[1]. The fp64 sums err by less than
// 2**-40 of the latter: a thread adds up some hundred to some thousand numbers, and at most some thousand blocks follow.
template <class T> __global__ void add_drawn(double* sums, index_t elements, Key key, int kind) {
  constexpr int together = drawn_together<T>;
  double sum = 0.0, magnitude = 0.0;
  for (index_t i = first_index(); i * together < elements; i += grid_stride()) {
    const uint4 bits = philox(key, i);
    for (int part = 0; part < together; ++part) {
      const double x = i * together + part < elements ? to_double(drawn<T>(bits, part, kind)) : 0.0;
      sum += x;
      magnitude += fabs(x);
    }
  }
  add_to_block(sums, sum);
  add_to_block(sums + 1, magnitude);
}

template <class T>
__global__ void compare_sum(double* maximum, const double* sums, const T* output) {
  double worst = 0.0;
  raise(worst, error_of_sum(sums, output));
  raise_to_block(maximum, worst);
}

template <class T>
__global__ void check_sum(CheckResultSlot slot, const double* sums, const T* output) {
  double worst = 0.0;
  raise(worst, error_of_sum(sums, output));
  write_check_result(slot, worst);
}
