// Check of the stencil: every mean recomputed in 64 bits.

#include "harness.cuh"

// out[i] = mean(in[i .. i+k]): sums in 64 bits; the largest |out - mean| over the mean of |in| is the error. Outputs
// from `elements - k` on must still be poison: nobody may write there.
template <class T>
__global__ void compare_stencil(double* maximum, unsigned long long* strays, const T* in, const T* out,
                                index_t elements, int k, unsigned poison) {
  double worst = 0.0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    if (i >= elements - k) {
      if (reinterpret_cast<const unsigned*>(out)[i] != poison) atomicAdd(strays, 1ull);
      continue;
    }
    double error;
    if constexpr (T(1) / T(2) == T(0)) {  // integers: the mean is truncated, as C++ divides
      long long sum = 0;
      for (int t = 0; t <= k; ++t) sum += in[i + t];
      error = fabs(static_cast<double>(out[i]) - static_cast<double>(sum / (k + 1)));
    } else {
      double sum = 0.0, size = 0.0;
      for (int t = 0; t <= k; ++t) {
        sum += in[i + t];
        size += fabs(static_cast<double>(in[i + t]));
      }
      error = size > 0.0 ? fabs(out[i] - sum / (k + 1)) / (size / (k + 1)) : fabs(static_cast<double>(out[i]));
    }
    if (!(error <= worst)) worst = error == error ? error : 1e300;
  }
  raise_to_block(maximum, worst);
}
