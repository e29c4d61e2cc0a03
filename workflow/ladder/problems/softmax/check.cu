// Checks of a softmax: every output, of timed launches too, against fp64. A row is drawn again three times, for its
// maximum, its sum and its outputs, so that nothing is read which a kernel could have written but the output itself.

#include "harness.cuh"

namespace {

// Combines one number of each of the 256 threads. All get the result.
template <class Combine> __device__ double over_block(double value, Combine combine) {
  __shared__ double held[256];
  __syncthreads();  // the result before has been read
  held[threadIdx.x] = value;
  for (int left = 128; left > 0; left /= 2) {
    __syncthreads();
    if (threadIdx.x < left) held[threadIdx.x] = combine(held[threadIdx.x], held[threadIdx.x + left]);
  }
  __syncthreads();
  return held[0];
}

// Calls act(at, number) for what was drawn of a row, each thread for some of it. `at` counts from the first row on.
template <class T, class Act>
__device__ void for_each_drawn(index_t row, index_t columns, Key key, int kind, Act act) {
  constexpr int together = drawn_together<T>;
  const index_t begin = row * columns, end = begin + columns;
  for (index_t pack = begin / together + threadIdx.x; pack * together < end; pack += blockDim.x) {
    const uint4 bits = philox(key, pack);
    for (int part = 0; part < together; ++part) {
      const index_t at = pack * together + part;
      if (at >= begin && at < end) act(at, to_double(drawn<T>(bits, part, kind)));
    }
  }
}

// The largest relative error of the rows that this block looks at, beyond what `Allowance` of bounds.py allows by itself.
// NaN, as the poison is, is an error. The squares of errors are added to `squares`.
template <class T>
__device__ double worst_error(const T* output, index_t rows, index_t columns, Key key, int kind, double per_distance,
                              double flushed, double& squares) {
  double worst = 0.0;
  for (index_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const double least = __longlong_as_double(0xFFF0000000000000ll);
    double maximum = least, sum = 0.0;
    for_each_drawn<T>(row, columns, key, kind, [&](index_t, double x) { maximum = fmax(maximum, x); });
    maximum = over_block(maximum, [](double a, double b) { return fmax(a, b); });
    if (maximum == least) continue;  // no softmax
    for_each_drawn<T>(row, columns, key, kind, [&](index_t, double x) { sum += exp(x - maximum); });
    const double scale = 1.0 / over_block(sum, [](double a, double b) { return a + b; });
    for_each_drawn<T>(row, columns, key, kind, [&](index_t at, double x) {
      const double right = exp(x - maximum) * scale;
      const double allowed = (right > 0.0 ? per_distance * (maximum - x) * right : 0.0) + flushed;
      const double beyond = fabs(to_double(output[at]) - right) - allowed;
      const double error = beyond <= 0.0 ? 0.0 : beyond / right;
      raise(worst, error);
      squares += error * error;
    });
  }
  return worst;
}

}  // namespace

template <class T>
__global__ void compare_rows(double* maximum, double* squares, const T* output, index_t rows, index_t columns, Key key,
                             int kind, double per_distance, double flushed) {
  double of_errors = 0.0;
  raise_to_block(maximum, worst_error(output, rows, columns, key, kind, per_distance, flushed, of_errors));
  add_to_block(squares, of_errors);
}

template <class T>
__global__ void check_rows(CheckResultSlot slot, const T* output, index_t rows, index_t columns, Key key, int kind,
                           double per_distance, double flushed, double rms_scale) {
  double of_errors = 0.0;
  const double worst = worst_error(output, rows, columns, key, kind, per_distance, flushed, of_errors);
  write_check_result(slot, worst, of_errors, rms_scale);
}
