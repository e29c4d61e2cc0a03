// Checks of a GEMM with block scales: C compared with products over 128 of K in fp32, far more exact than those of tensor
// cores in fp8, whose sum over blocks is in fp64; and in far less time with random sums of it. N_b: see bounds.py.

#include "harness.cuh"

namespace {

using fp8 = __nv_fp8_e4m3;

constexpr int block = 256;       // threads
constexpr int depth = 128;       // of K, and columns of B, that have a scale in common
constexpr int spot_columns = 8;  // neighbours that are compared one by one, each by a warp

// What K has in blocks, and rows of scales in elements.
__device__ index_t blocks_of(index_t k) { return (k + depth - 1) / depth; }
__device__ index_t in_fours(index_t count) { return (count + 3) / 4 * 4; }

// Both scales, as they were drawn with keys of their own. Where `used` is 0 the answer has none.
struct Scales {
  const float *a, *b;
  index_t used, row_of_a, row_of_b;

  __device__ Scales(const float* scale_a, const float* scale_b, index_t scaled, index_t m, index_t k)
      : a(scale_a), b(scale_b), used(scaled), row_of_a(in_fours(m)), row_of_b(in_fours(blocks_of(k))) {}
  __device__ float of_a(index_t row, index_t of_k) const { return used ? a[of_k * row_of_a + row] : 1.0f; }
  __device__ float of_b(index_t column, index_t of_k) const { return used ? b[column / depth * row_of_b + of_k] : 1.0f; }
};

// Four scales: in [1, 2) times a power of two from 2^-4 to 2^3.
__device__ float scale_of(unsigned bits) { return __uint_as_float((123 + (bits >> 29)) << 23 | (bits & 0x7FFFFFu)); }
__device__ float4 drawn_scales(Key key, index_t index) {
  const uint4 bits = philox(key, index);
  return make_float4(scale_of(bits.x), scale_of(bits.y), scale_of(bits.z), scale_of(bits.w));
}

// 0, or 1e300 where scales are not as they were drawn: a kernel has written them.
__device__ double error_of_scales(const float* scales, index_t count, Key key) {
  bool same = true;
  for (index_t i = first_index(); i < count / 4; i += grid_stride()) {
    const float4 held = reinterpret_cast<const float4*>(scales)[i], expected = drawn_scales(key, i);
    same = same && bits_of(held.x) == bits_of(expected.x) && bits_of(held.y) == bits_of(expected.y) &&
           bits_of(held.z) == bits_of(expected.z) && bits_of(held.w) == bits_of(expected.w);
  }
  return same ? 0.0 : 1e300;
}
__device__ double error_of_scales(const Scales& scales, index_t m, index_t n, index_t k, Key key_of_a, Key key_of_b) {
  const index_t of_a = blocks_of(k) * scales.row_of_a, of_b = blocks_of(n) * scales.row_of_b;
  return fmax(error_of_scales(scales.a, of_a, key_of_a), error_of_scales(scales.b, of_b, key_of_b));
}

// An error beyond what rounding to the output type explains; NaN where that is unknown.
__device__ double beyond(double error, double rounding) {
  const double more = fabs(error) - rounding;
  return more > 0.0 ? more : (isfinite(more) ? 0.0 : more - more);
}

// Of two numbers that are 0 together, 0.
__device__ double over(double error, double magnitude) { return error == 0.0 ? 0.0 : error / magnitude; }

// 16 elements of a row, from a column on; zeros outside of the matrix.
__device__ void load(float (&x)[16], const fp8* matrix, index_t row, index_t column, index_t rows, index_t columns) {
  uint4 bits = make_uint4(0, 0, 0, 0);
  if (row < rows && column < columns) bits = *reinterpret_cast<const uint4*>(matrix + row * columns + column);
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
  for (int pair = 0; pair < 8; ++pair) {
    const auto both = static_cast<__nv_fp8x2_storage_t>(words[pair / 2] >> pair % 2 * 16);
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(both, __NV_E4M3);
    x[2 * pair] = __half2float(__half(__half_raw{halves.x}));
    x[2 * pair + 1] = __half2float(__half(__half_raw{halves.y}));
  }
}

__device__ double sum_of_warp(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
  return value;
}

// Of each of `values` the sum over the block, for its first thread.
template <int count> __device__ void sum_over_block(double (&values)[count]) {
  __shared__ double partial[count][block / 32];
  for (int one = 0; one < count; ++one) values[one] = sum_of_warp(values[one]);
  __syncthreads();
  for (int one = 0; one < count; ++one) {
    if (threadIdx.x % 32 == 0) partial[one][threadIdx.x / 32] = values[one];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int one = 0; one < count; ++one) {
    values[one] = 0.0;
    for (int of = 0; of < block / 32; ++of) values[one] += partial[one][of];
  }
}

// The sign of an index, a bit of a hashed number.
__device__ float with_sign(Key key, index_t index, float x) {
  const unsigned sign = static_cast<unsigned>(mixed(key, index / 32)) >> index % 32 << 31;
  return __uint_as_float(__float_as_uint(x) ^ sign);
}

}  // namespace

__global__ void draw_scales(float* scales, index_t count, Key key) {
  for (index_t i = first_index(); i < count / 4; i += grid_stride()) {
    reinterpret_cast<float4*>(scales)[i] = drawn_scales(key, i);
  }
}

// The largest error of C (m x n) over the sum of N_b, and to `squares` those over the root of the sum of N_b^2. A block
// has 64 x 64 of C, and of 32 of K at a time the operands in shared memory.
template <class Out>
__global__ void __launch_bounds__(block)
    compare_scaled(double* maximum, double* squares, const Out* c, const fp8* a, const fp8* b, const float* scale_a,
                   const float* scale_b, Key key_of_a, Key key_of_b, index_t scaled, index_t m, index_t n, index_t k,
                   double rounding) {
  constexpr int side = 64, step = 32, each = 4;  // outputs of a thread, in both directions
  __shared__ alignas(16) float operands[2][step][side + 4];
  __shared__ alignas(16) float factors[2][side], norms[2][side];
  const Scales scales(scale_a, scale_b, scaled, m, k);
  const int across = threadIdx.x % 16 * each, down = threadIdx.x / 16 * each;
  // What a thread loads: 16 of K of a row of A or B, whose squares a neighbour adds to.
  const int of = threadIdx.x / 128, line = threadIdx.x % 128 / 2, half = threadIdx.x % 2;
  const index_t tiles_across = (n + side - 1) / side, tiles = tiles_across * ((m + side - 1) / side);
  double worst = error_of_scales(scales, m, n, k, key_of_a, key_of_b), own_squares = 0.0;
  for (index_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const index_t row = tile / tiles_across * side, column = tile % tiles_across * side;
    const index_t loaded = (of == 0 ? row : column) + line, rows = of == 0 ? m : n;
    double sums[each][each] = {};
    float linear[each][each] = {}, quadratic[each][each] = {};
    for (index_t at = 0; at < k; at += depth) {
      float products[each][each] = {}, of_line = 0.0f;
      for (int part = 0; part < depth; part += step) {
        float x[16];
        load(x, of == 0 ? a : b, loaded, at + part + 16 * half, rows, k);
        __syncthreads();
        for (int e = 0; e < 16; ++e) {
          operands[of][16 * half + e][line] = x[e];
          of_line += x[e] * x[e];
        }
        __syncthreads();
#pragma unroll 4
        for (int i = 0; i < step; ++i) {
          const float4 left = *reinterpret_cast<const float4*>(&operands[0][i][down]);
          const float4 right = *reinterpret_cast<const float4*>(&operands[1][i][across]);
          const float lefts[each] = {left.x, left.y, left.z, left.w};
          const float rights[each] = {right.x, right.y, right.z, right.w};
          for (int y = 0; y < each; ++y) {
            for (int z = 0; z < each; ++z) products[y][z] += lefts[y] * rights[z];
          }
        }
      }
      of_line += __shfl_down_sync(~0u, of_line, 1);
      if (half == 0) {
        float factor = 0.0f;
        if (loaded < rows) factor = of == 0 ? scales.of_a(loaded, at / depth) : scales.of_b(loaded, at / depth);
        factors[of][line] = factor;
        norms[of][line] = factor * sqrtf(of_line);
      }
      __syncthreads();
      for (int y = 0; y < each; ++y) {
        for (int z = 0; z < each; ++z) {
          const double scale = static_cast<double>(factors[0][down + y]) * factors[1][across + z];
          const float norm = norms[0][down + y] * norms[1][across + z];
          sums[y][z] += scale * products[y][z];
          linear[y][z] += norm;
          quadratic[y][z] += norm * norm;
        }
      }
    }
    for (int y = 0; y < each; ++y) {
      for (int z = 0; z < each; ++z) {
        if (row + down + y >= m || column + across + z >= n) continue;
        const double found = to_double(c[(row + down + y) * n + column + across + z]);
        const double error = beyond(found - sums[y][z], rounding * fabs(sums[y][z]));
        raise(worst, over(error, linear[y][z]));
        own_squares += over(error * error, quadratic[y][z]);
      }
    }
  }
  raise_to_block(maximum, worst);
  add_to_block(squares, own_squares);
}

// What follows checks one timed launch (Freivalds: see the check of problem gemm): for signs x that nobody knew during the
// launch, C x must be what A, the scales and y say, with y[k] = the sum of B[n][k] x[n] times the scale of B there.

// y, and of each block of K the sum of the squares of B times its scales: `squares`. A block has 128 x 128 of B at a time.
__global__ void __launch_bounds__(block)
    multiply_columns_by_signs(CheckResultSlot slot, float* y, float* squares, const fp8* b, const float* scale_b,
                              index_t scaled, index_t n, index_t k) {
  constexpr int chunks = depth / 16, lines = block / chunks;
  __shared__ float partial[lines][depth + 1];
  const Scales scales(nullptr, scale_b, scaled, 0, k);
  const int chunk_at = threadIdx.x % chunks * 16, line = threadIdx.x / chunks;
  const index_t across = blocks_of(k), tiles = across * blocks_of(n);
  for (index_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const index_t first = tile / across * depth, of_k = tile % across, at = of_k * depth;
    float sums[16] = {}, own_squares = 0.0f;
    for (int part = 0; part < depth; part += lines) {
      const index_t row = first + part + line;
      float x[16];
      load(x, b, row, at + chunk_at, n, k);
      const float sign = with_sign(slot.key, row, 1.0f);
      for (int e = 0; e < 16; ++e) {
        sums[e] += sign * x[e];
        own_squares += x[e] * x[e];
      }
    }
    __syncthreads();
    for (int e = 0; e < 16; ++e) partial[line][chunk_at + e] = sums[e];
    __syncthreads();
    const float scale = scales.of_b(first, of_k);
    if (threadIdx.x < depth && at + threadIdx.x < k) {
      float sum = 0.0f;
      for (int of = 0; of < lines; ++of) sum += partial[of][threadIdx.x];
      atomicAdd(y + at + threadIdx.x, scale * sum);
    }
    double of_block[1] = {own_squares};
    sum_over_block(of_block);
    if (threadIdx.x == 0) atomicAdd(squares + of_k, static_cast<float>(of_block[0] * scale * scale));
  }
}

namespace {

// The same error as compare_scaled's, of single elements: rows chosen by chance, with neighbouring columns. Their squares
// are added to `squares`.
template <class Out>
__device__ double worst_of_spots(CheckResultSlot slot, const Out* c, const fp8* a, const fp8* b, const Scales& scales,
                                 index_t spots, index_t m, index_t n, index_t k, double rounding, double& squares) {
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32;
  double worst = 0.0;
  for (index_t spot = blockIdx.x; spot < spots; spot += gridDim.x) {
    const unsigned long long chosen = mixed(~slot.key, spot);
    const unsigned groups = (n + spot_columns - 1) / spot_columns;
    const index_t row = static_cast<unsigned>(chosen) % static_cast<unsigned>(m);
    const index_t column = static_cast<unsigned>(chosen >> 32) % groups * spot_columns + own;
    double sum = 0.0, linear = 0.0, quadratic = 0.0;
    // Eight threads have a block of K.
    for (index_t at = 16 * lane; at - 16 * lane < k; at += 16 * 32) {
      float left[16], right[16], product = 0.0f, of_a = 0.0f, of_b = 0.0f;
      load(left, a, row, at, m, k);
      load(right, b, column, at, n, k);
      for (int e = 0; e < 16; ++e) {
        product += left[e] * right[e];
        of_a += left[e] * left[e];
        of_b += right[e] * right[e];
      }
      for (int step = 4; step > 0; step /= 2) {
        product += __shfl_down_sync(~0u, product, step);
        of_a += __shfl_down_sync(~0u, of_a, step);
        of_b += __shfl_down_sync(~0u, of_b, step);
      }
      if (lane % 8 != 0 || at >= k || column >= n) continue;
      const double scale = static_cast<double>(scales.of_a(row, at / depth)) * scales.of_b(column, at / depth);
      const double norm = scale * sqrt(static_cast<double>(of_a) * of_b);
      sum += scale * product;
      linear += norm;
      quadratic += norm * norm;
    }
    sum = sum_of_warp(sum);
    linear = sum_of_warp(linear);
    quadratic = sum_of_warp(quadratic);
    if (lane != 0 || column >= n) continue;
    const double error = beyond(to_double(c[row * n + column]) - sum, rounding * fabs(sum));
    raise(worst, over(error, linear));
    squares += over(error * error, quadratic);
  }
  return worst;
}

}  // namespace

// The largest error of every row of C times x, and of single elements, comparable with the bound of elements: `chance` is
// how many root sums of squares the rounding errors of a row may add up to, `row_scale` the same of all others over that
// bound, and `rms_scale` what makes the root of the spots' squares comparable with it.
template <class Out>
__global__ void __launch_bounds__(block)
    check_scaled(CheckResultSlot slot, const Out* c, const fp8* a, const fp8* b, const float* scale_a,
                 const float* scale_b, Key key_of_a, Key key_of_b, const float* y, const float* squares,
                 index_t scaled, index_t spots, index_t m, index_t n, index_t k, double rounding, double chance,
                 double row_scale, double rms_scale) {
  constexpr double rms_of_rounding = 0.57735;  // at most, of an error of half a unit: 1 / sqrt(3)
  const Scales scales(scale_a, scale_b, scaled, m, k);
  double of_spots = 0.0, worst = worst_of_spots(slot, c, a, b, scales, spots, m, n, k, rounding, of_spots);
  raise(worst, error_of_scales(scales, m, n, k, key_of_a, key_of_b));
  // The last blocks have the first rows, since the first ones have other work as well.
  for (index_t row = gridDim.x - 1 - blockIdx.x; row < m; row += gridDim.x) {
    double sums[3] = {};  // of C x less what it must be, of C's squares, and of N_b^2 over the row
#pragma unroll 4
    for (index_t i = threadIdx.x; i < n; i += block) {
      const double x = to_double(c[row * n + i]);
      sums[0] += with_sign(slot.key, i, 1.0f) * x;
      sums[1] += x * x;
    }
    for (index_t at = 16 * threadIdx.x; at < k; at += 16 * block) {
      float x[16], product = 0.0f, of_a = 0.0f;
      load(x, a, row, at, m, k);
      for (int part = 0; part < 16; part += 4) {
        const float4 four = *reinterpret_cast<const float4*>(y + at + part);
        product += x[part] * four.x + x[part + 1] * four.y + x[part + 2] * four.z + x[part + 3] * four.w;
        for (int e = 0; e < 4; ++e) of_a += x[part + e] * x[part + e];
      }
      const double scale = scales.of_a(row, at / depth);
      sums[0] -= scale * product;
      sums[2] += scale * scale * of_a * squares[at / depth];
    }
    sum_over_block(sums);
    if (threadIdx.x != 0) continue;
    const double of_rounding = chance * rms_of_rounding * rounding * sqrt(sums[1]);
    raise(worst, over(beyond(sums[0], of_rounding), row_scale * sqrt(sums[2])));
  }
  write_check_result(slot, worst, of_spots, rms_scale);
}
