// C = A@B with one thread per output, and on demand one of the ways a result can be wrong. `Sum` is what it adds up in.

#include "harness.cuh"

enum Mutation { right, zeros, last_product, dropped_tile, doubled_tile, last_quarter, swapped_rows, one_element, tile_of_c };

namespace {

// Rounds to `bits` bits of mantissa, the leading one counted.
__device__ float narrowed(float x, int bits) {
  const unsigned drop = 24 - bits, word = __float_as_uint(x);
  if (drop == 0) return x;
  return __uint_as_float(word + (1u << (drop - 1)) - 1 + (word >> drop & 1) >> drop << drop);
}

__device__ float plus(float sum, float x, float y) { return fmaf(x, y, sum); }
__device__ __half plus(__half sum, float x, float y) { return __float2half_rn(fmaf(x, y, __half2float(sum))); }

}  // namespace

// Element (k, n) of B lies at k * b_by_k + n * b_by_n. Inputs are rounded to `bits`; `off` is added to one element.
template <class In, class Out, class Sum_>
__global__ void mutated(Out* c, const In* a, const In* b, index_t m, index_t n, index_t k, index_t b_by_k,
                        index_t b_by_n, index_t mutation, index_t bits, double off) {
  constexpr index_t tile = 128;
  const index_t middle = k / 2 / tile * tile;
  for (index_t i = first_index(); i < m * n; i += grid_stride()) {
    index_t row = i / n;
    const index_t column = i % n;
    const bool in_tile = mutation == dropped_tile || mutation == tile_of_c && row < 64 && column < 64;
    if (mutation == swapped_rows && row % (m / 2) == 0) row = m / 2 - row;
    index_t end = k;
    if (mutation == zeros) end = 0;
    if (mutation == last_product) end = k - 1;
    if (mutation == last_quarter) end = k - k / 4;
    Sum_ sum = 0.0f;
    for (int pass = 0; pass < (mutation == doubled_tile ? 2 : 1); ++pass) {
      const index_t begin = pass == 0 ? 0 : middle, until = pass == 0 ? end : min(k, middle + tile);
      for (index_t at = begin; at < until; ++at) {
        if (in_tile && at == middle) at = middle + tile;
        if (at >= until) break;
        const float x = to_double(a[row * k + at]), y = to_double(b[at * b_by_k + column * b_by_n]);
        sum = plus(sum, narrowed(x, bits), narrowed(y, bits));
      }
    }
    float value = sum;
    if (mutation == one_element && i == m / 3 * n + n / 3) value += off;
    c[i] = from_float<Out>(value);
  }
}
