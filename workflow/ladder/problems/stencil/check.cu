// Checks of the stencil: means recomputed in 64 bits, all of them or random stretches.

#include "harness.cuh"

namespace {

constexpr int stretches = 1024;  // of as many outputs as a block has threads

// Error of out[i] = mean(in[i .. i+k]) over the mean of |in|, by sums in 64 bits. From `elements - k` on there are no
// outputs: nobody may write there, and 1e300 says that somebody did.
template <class T>
__device__ double error_at(const T* in, const T* out, index_t i, index_t elements, int k, unsigned poison) {
  if (i >= elements - k) return reinterpret_cast<const unsigned*>(out)[i] == poison ? 0.0 : 1e300;
  if constexpr (T(1) / T(2) == T(0)) {  // integers: the mean is truncated, as C++ divides
    long long sum = 0;
    for (int t = 0; t <= k; ++t) sum += in[i + t];
    return fabs(static_cast<double>(out[i]) - static_cast<double>(sum / (k + 1)));
  } else {
    double sum = 0.0, size = 0.0;
    for (int t = 0; t <= k; ++t) {
      sum += in[i + t];
      size += fabs(static_cast<double>(in[i + t]));
    }
    return size > 0.0 ? fabs(out[i] - sum / (k + 1)) / (size / (k + 1)) : fabs(static_cast<double>(out[i]));
  }
}

}  // namespace

template <class T>
__global__ void compare_stencil(double* maximum, const T* in, const T* out, index_t elements, int k, unsigned poison) {
  double worst = 0.0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    raise(worst, error_at(in, out, i, elements, k, poison));
  }
  raise_to_block(maximum, worst);
}

// The same of a timed launch: of stretches at random places, and of the end. The input is what was drawn from element
// `moved` on.
template <class T>
__global__ void check_stretches(CheckResultSlot slot, const T* in, const T* out, index_t elements, int k,
                                unsigned poison, index_t moved, Key key, int kind) {
  double worst = 0.0;
  for (index_t item = blockIdx.x; item <= stretches; item += gridDim.x) {
    const auto chosen = static_cast<index_t>(mixed(~slot.key, item) % elements);
    const index_t first = item < stretches ? chosen : elements - blockDim.x, i = first + threadIdx.x;
    if (i < 0 || i >= elements) continue;
    raise(worst, error_at(in, out, i, elements, k, poison));
    raise(worst, error_of_input(in - moved, moved + i, key, kind));
  }
  write_check_result(slot, worst);
}
