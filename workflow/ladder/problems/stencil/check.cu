// Checks of the stencil: means recomputed in 64 bits, all of them or a stretch of each tile.

#include "harness.cuh"

namespace {

constexpr int tile = 1024, stretch = 32;  // outputs: of a block of a kernel, and of those the ones that a warp looks at
constexpr index_t ends = 256 / stretch;   // stretches in which the outputs end: a halo is shorter

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

// The same of a timed launch: of a stretch at a random place in each tile, `stretches` in all, and of the end. The input is
// what was drawn from element `moved` on.
template <class T>
__global__ void check_stretches(CheckResultSlot slot, const T* in, const T* out, index_t elements, int k,
                                unsigned poison, index_t moved, Key key, int kind, index_t stretches) {
  const index_t tiles = (elements + tile - 1) / tile, lane = threadIdx.x % stretch;
  double worst = 0.0;
  for (index_t item = first_index() / stretch; item < stretches + ends; item += grid_stride() / stretch) {
    const index_t begin = item % tiles * tile, length = min(elements - begin, index_t(tile));
    const auto chosen = static_cast<index_t>(mixed(~slot.key, item) % tile);
    const index_t of_tile = begin + (chosen + lane) % length, of_end = elements - (item - stretches) * stretch - lane - 1;
    const index_t i = item < stretches ? of_tile : of_end;
    if (i < 0) continue;
    raise(worst, error_at(in, out, i, elements, k, poison));
    raise(worst, error_of_input(in - moved, moved + i, key, kind));
  }
  write_check_result(slot, worst);
}
