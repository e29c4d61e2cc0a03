// Checks of GEMM: operands widened to fp64, and C compared with the fp64 product.

#include "harness.cuh"

// out[r * columns + c] = in[r * row_stride + c * column_stride], optionally its absolute value.
template <class T>
__global__ void widen(double* out, const T* in, index_t rows, index_t columns, index_t row_stride,
                      index_t column_stride, int absolute) {
  for (index_t i = first_index(); i < rows * columns; i += grid_stride()) {
    const double x = to_double(in[i / columns * row_stride + i % columns * column_stride]);
    out[i] = absolute ? fabs(x) : x;
  }
}

// Largest normalised error over a region of C: the part of |c - e| that rounding e to the output type (unit roundoff
// `rounding`) does not explain, over |alpha| (|A||B|) + |beta| |C0|; e = alpha AB + beta C0.
template <class T>
__global__ void compare_product(double* maximum, const T* c, const T* before, const double* product,
                                const double* magnitude, index_t rows, index_t columns, index_t row_stride,
                                index_t column_stride, double alpha, double beta, double rounding) {
  double worst = 0.0;
  for (index_t i = first_index(); i < rows * columns; i += grid_stride()) {
    const index_t at = i / columns * row_stride + i % columns * column_stride;
    const double prior = beta != 0.0 ? beta * to_double(before[at]) : 0.0;
    const double expected = alpha * product[i] + prior;
    const double scale = fabs(alpha) * magnitude[i] + fabs(prior);
    const double error = fabs(to_double(c[at]) - expected) - rounding * fabs(expected);
    const double normalised = error > 0.0 ? error / scale : (error == error ? 0.0 : error);
    if (!(normalised <= worst)) worst = normalised == normalised ? normalised : 1e300;
  }
  raise_to_block(maximum, worst);
}

// Counts elements that are NaN, as poisoned outputs nobody wrote are.
template <class T> __global__ void count_nan(unsigned long long* count, const T* data, index_t elements) {
  unsigned long long found = 0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    const double x = to_double(data[i]);
    found += x != x;
  }
  if (found) atomicAdd(count, found);
}
