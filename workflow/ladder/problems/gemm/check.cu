// Checks of GEMM: C compared with an fp64 product of widened operands, and in far less time with random sums of it.

#include "harness.cuh"

namespace {

// An error beyond what rounding to the output type explains, over the magnitude of what was added up. NaN where that is
// unknown: squares of a wrong C, above 1e19 in bf16, overflow in fp32, and infinite rounding would explain any error.
__device__ double normalised(double error, double rounding, double magnitude) {
  const double beyond = fabs(error) - rounding;
  return beyond > 0.0 ? beyond / magnitude : (isfinite(beyond) ? 0.0 : beyond - beyond);
}

}  // namespace

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
// `rounding`, and `lost` where numbers are subnormal) does not explain, over |alpha| (|A||B|) + |beta| |C0|; e = alpha AB + beta C0. To `digest` is added what
// tells whether product and magnitude are as they were, with a key that no kernel knew; to `squares` those of the errors.
template <class T>
__global__ void compare_product(double* maximum, double* squares, unsigned long long* digest, unsigned long long key,
                                const T* c, const T* before, const double* product, const double* magnitude, index_t rows, index_t columns, index_t row_stride,
                                index_t column_stride, double alpha, double beta, double rounding, double lost) {
  double worst = 0.0, own_squares = 0.0;
  unsigned long long own = 0;
  for (index_t i = first_index(); i < rows * columns; i += grid_stride()) {
    own += mixed(key ^ __double_as_longlong(product[i]), 2 * i);
    own += mixed(key ^ __double_as_longlong(magnitude[i]), 2 * i + 1);
    const index_t at = i / columns * row_stride + i % columns * column_stride;
    const double prior = beta != 0.0 ? beta * to_double(before[at]) : 0.0;
    const double expected = alpha * product[i] + prior;
    const double scale = fabs(alpha) * magnitude[i] + fabs(prior);
    const double error = normalised(to_double(c[at]) - expected, rounding * fabs(expected) + lost, scale);
    raise(worst, error);
    own_squares += error * error;
  }
  raise_to_block(maximum, worst);
  add_to_block(squares, own_squares);
  __shared__ unsigned long long of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  atomicAdd(&of_block, own);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(digest, of_block);
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

// What follows checks one timed launch (Freivalds, "Probabilistic machines can use less running time", IFIP 1977): for
// signs x that nobody knew during the launch, C x must be alpha A (B x). Signs are bits of hashed numbers. How far a sum of
// errors with random signs may lie from zero, bounds.py says.
namespace {

constexpr int block = 256;       // threads, of all kernels below
constexpr int spot_columns = 8;  // neighbours that are compared one by one

template <class T> constexpr int wide = 16 / sizeof(T);

template <class T> struct alignas(16) Chunk {
  T element[wide<T>];
};

// Loads every `step`-th of a row's chunks, of 16 bytes, into all of `chunks`; zeros behind the row's end.
template <class T, int number>
__device__ void load_chunks(Chunk<T> (&chunks)[number], const T* row, int first, int step, int count) {
  const bool aligned = reinterpret_cast<unsigned long long>(row) % 16 == 0;
  for (int one = 0; one < number; ++one) {
    const int at = (first + one * step) * wide<T>;
    chunks[one] = {};
    if (aligned && at + wide<T> <= count) chunks[one] = *reinterpret_cast<const Chunk<T>*>(row + at);
  }
  for (int one = 0; one < number; ++one) {
    const int at = (first + one * step) * wide<T>;
    if (aligned && at + wide<T> <= count) continue;
    for (int e = 0; e < wide<T>; ++e) {
      if (at + e < count) chunks[one].element[e] = row[at + e];
    }
  }
}

// Threads that have a row together: a warp if there are many rows, else a block. The last blocks have the first rows,
// since the first ones have other work as well.
struct Team {
  int size, rank, first, teams;  // `first` is its first row, `teams` the distance to the next

  __device__ explicit Team(index_t rows) {
    size = rows >= 1024 ? 32 : block;
    rank = threadIdx.x % size;
    first = (gridDim.x - 1 - blockIdx.x) * (block / size) + threadIdx.x / size;
    teams = gridDim.x * (block / size);
  }
};

// Adds up each of `values` over a team, for its first thread.
template <int count> __device__ void sum_over(int size, double (&values)[count]) {
  __shared__ double partial[count][32];
  for (int one = 0; one < count; ++one) {
    for (int step = 16; step > 0; step /= 2) values[one] += __shfl_down_sync(~0u, values[one], step);
  }
  if (size == 32) return;
  __syncthreads();
  for (int one = 0; one < count; ++one) {
    if (threadIdx.x % 32 == 0) partial[one][threadIdx.x / 32] = values[one];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int one = 0; one < count; ++one) {
    values[one] = 0.0;
    for (int of = 0; of < size / 32; ++of) values[one] += partial[one][of];
  }
}

// The signs of an index and the 31 behind it; a chunk has fewer.
__device__ unsigned signs_from(unsigned long long key, int index) { return mixed(key, index / 32) >> (index % 32); }

__device__ float with_sign(unsigned signs, int bit, float x) {
  return __uint_as_float(__float_as_uint(x) ^ (signs << (31 - bit) & 0x80000000u));
}
__device__ double with_sign(unsigned signs, int bit, double x) { return signs >> bit & 1 ? -x : x; }

// A team's sums of a row times x, and of its squares.
template <class T>
__device__ void add_signed(const Team& team, const T* row, int count, unsigned long long key, double& sum,
                           double& squares) {
  using sum_t = typename Sum<T>::type;
  constexpr int at_once = 4;  // loads on their way together
  sum_t own = 0, own_squares = 0;
  for (int i = team.rank; i * wide<T> < count; i += at_once * team.size) {
    Chunk<T> chunks[at_once];
    load_chunks(chunks, row, i, team.size, count);
    for (int one = 0; one < at_once; ++one) {
      const unsigned signs = signs_from(key, (i + one * team.size) * wide<T>);
      sum_t x[wide<T>];
      to_sums(chunks[one].element, x);
      for (int e = 0; e < wide<T>; ++e) {
        own += with_sign(signs, e, x[e]);
        own_squares += x[e] * x[e];
      }
    }
  }
  sum = own;
  squares = own_squares;
}

// A team's sums of a row times y, and of its squares.
template <class T>
__device__ void add_product(const Team& team, const T* row, int count, const typename Sum<T>::type* y, double& sum,
                            double& squares) {
  using sum_t = typename Sum<T>::type;
  constexpr int at_once = 2;
  sum_t own = 0, own_squares = 0;
  for (int i = team.rank; i * wide<T> < count; i += at_once * team.size) {
    Chunk<T> chunks[at_once];
    load_chunks(chunks, row, i, team.size, count);
    for (int one = 0; one < at_once; ++one) {
      const int at = (i + one * team.size) * wide<T>;
      if (at >= count) break;
      sum_t x[wide<T>];
      to_sums(chunks[one].element, x);
      for (int part = 0; part < wide<T>; part += wide<sum_t>) {
        const auto of_y = *reinterpret_cast<const Chunk<sum_t>*>(y + at + part);  // zeros behind its end
        for (int e = 0; e < wide<sum_t>; ++e) {
          own += x[part + e] * of_y.element[e];
          own_squares += x[part + e] * x[part + e];
        }
      }
    }
  }
  sum = own;
  squares = own_squares;
}

}  // namespace

// What comes ahead of a timed launch: inputs drawn, so many elements, and C poisoned.
template <class In, class Out>
__global__ void refresh_product(In* a, In* b, Out* c, index_t count_a, index_t count_b, index_t c_bytes, Key key_of_a,
                                Key key_of_b, int kind) {
  draw(a, count_a, key_of_a, kind);
  draw(b, count_b, key_of_b, kind);
  poison(c, c_bytes);
}

// y[row] = b[row] x, and squares += the sum of all squares, for b of rows x columns.
template <class T>
__global__ void multiply_rows_by_signs(CheckResultSlot slot, typename Sum<T>::type* y, typename Sum<T>::type* squares,
                                       const T* b, index_t rows, index_t columns) {
  const Team team(rows);
  for (index_t row = team.first; row < rows; row += team.teams) {
    double sums[2];
    add_signed(team, b + row * columns, columns, slot.key, sums[0], sums[1]);
    sum_over(team.size, sums);
    if (team.rank != 0) continue;
    y[row] = sums[0];
    atomicAdd(squares, sums[1]);
  }
}

// y[column] += x b[..][column], and squares += the sum of all squares, for b of rows x columns.
template <class T>
__global__ void __launch_bounds__(block, 2)
    multiply_columns_by_signs(CheckResultSlot slot, typename Sum<T>::type* y, typename Sum<T>::type* squares,
                              const T* b, index_t rows, index_t columns) {
  using sum_t = typename Sum<T>::type;
  constexpr int tile_rows = 128, tile_columns = 32 * wide<T>, warps = block / 32, at_once = 8;
  __shared__ sum_t partial[warps][tile_columns];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned across = (columns + tile_columns - 1) / tile_columns, down = (rows + tile_rows - 1) / tile_rows;
  for (unsigned tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
    const int begin = tile % across * tile_columns, first = tile / across * tile_rows + warp;
    const int here = begin < columns ? min(columns - begin, index_t(tile_columns)) : 0;
    sum_t sums[wide<T>] = {}, own_squares = 0;
    for (int part = 0; part < tile_rows; part += warps * at_once) {
      Chunk<T> chunks[at_once][1];
      for (int one = 0; one < at_once; ++one) {
        const int row = first + part + one * warps;
        load_chunks(chunks[one], b + row * columns + begin, lane, 1, row < rows ? here : 0);
      }
      for (int one = 0; one < at_once; ++one) {
        const unsigned signs = signs_from(slot.key, first + part + one * warps);
        sum_t x[wide<T>];
        to_sums(chunks[one][0].element, x);
        for (int e = 0; e < wide<T>; ++e) {
          sums[e] += with_sign(signs, 0, x[e]);
          own_squares += x[e] * x[e];
        }
      }
    }
    __syncthreads();
    for (int e = 0; e < wide<T>; ++e) partial[warp][lane * wide<T> + e] = sums[e];
    __syncthreads();
    for (int at = threadIdx.x; at < here; at += block) {
      sum_t sum = 0;
      for (int of = 0; of < warps; ++of) sum += partial[of][at];
      atomicAdd(y + begin + at, sum);
    }
    double of_block[1] = {own_squares};
    sum_over(block, of_block);
    if (threadIdx.x == 0) atomicAdd(squares, of_block[0]);
  }
}

namespace {

// The same error as compare_product's, of single elements: rows chosen by chance, with neighbouring columns. Their squares
// are added to `squares`.
template <class In, class Out>
__device__ double worst_of_spots(CheckResultSlot slot, const Out* c, const Out* before, const In* a, const In* b,
                                 int spots, unsigned m, unsigned n, int k, index_t b_by_k, index_t b_by_n, double alpha,
                                 double beta, double rounding, double lost, double& squares) {
  constexpr int slices = block / spot_columns, at_once = 8;
  __shared__ double parts[2][block];
  // A warp has a column where B's columns are contiguous, and neighbouring columns where its rows are.
  const int thread = threadIdx.x, own = b_by_k == 1 ? thread / slices : thread % spot_columns;
  const int slice = b_by_k == 1 ? thread % slices : thread / spot_columns;
  double worst = 0.0;
  for (int spot = blockIdx.x; spot < spots; spot += gridDim.x) {
    const unsigned long long chosen = mixed(~slot.key, spot);
    const unsigned groups = (n + spot_columns - 1) / spot_columns;
    const index_t row = static_cast<unsigned>(chosen) % m;
    const index_t column = static_cast<unsigned>(chosen >> 32) % groups * spot_columns + own;
    const In *row_of_a = a + row * k, *column_of_b = b + column * b_by_n;
    double sum = 0.0, magnitude = 0.0;
    for (int i = slice; i < (column < n ? k : 0); i += slices * at_once) {
      In left[at_once] = {}, right[at_once] = {};
      for (int one = 0; one < at_once; ++one) {
        const int at = i + one * slices;
        if (at < k) left[one] = row_of_a[at];
        if (at < k) right[one] = column_of_b[at * b_by_k];
      }
      for (int one = 0; one < at_once; ++one) {
        const double product = to_double(left[one]) * to_double(right[one]);
        sum += product;
        magnitude += fabs(product);
      }
    }
    __syncthreads();
    parts[0][own * slices + slice] = sum;
    parts[1][own * slices + slice] = magnitude;
    __syncthreads();
    if (slice != 0 || column >= n) continue;
    sum = magnitude = 0.0;
    for (int of = 0; of < slices; ++of) {
      sum += parts[0][own * slices + of];
      magnitude += parts[1][own * slices + of];
    }
    const double prior = beta != 0.0 ? beta * to_double(before[row * n + column]) : 0.0;
    const double expected = alpha * sum + prior, found = to_double(c[row * n + column]);
    const double scale = fabs(alpha) * magnitude + fabs(prior);
    const double error = normalised(found - expected, rounding * fabs(expected) + lost, scale);
    raise(worst, error);
    squares += error * error;
  }
  return worst;
}

}  // namespace

// The largest normalised error, as compare_product has it, of C (m x n): of every row times x, and of single elements.
// `y` is B x, `squares` the sum of B's squares; element (k, n) of B lies at k * b_by_k + n * b_by_n. `chance` is how many
// root sums of squares the rounding errors of a row may add up to, `row_scale` the same of all others over the bound of
// elements, and `rms_scale` what makes the root of the spots' squares comparable with that.
template <class In, class Out>
__global__ void __launch_bounds__(block, 3)
    check_product(CheckResultSlot slot, const Out* c, const Out* before, const In* a, const In* b,
                  const typename Sum<In>::type* y, const typename Sum<In>::type* squares, index_t spots, index_t m,
                  index_t n, index_t k, index_t b_by_k, index_t b_by_n, double alpha, double beta, double rounding,
                  double lost, double chance, double row_scale, double rms_scale) {
  constexpr double rms_of_rounding = 0.57735;  // at most, of an error of half a unit: 1 / sqrt(3)
  double of_spots = 0.0;
  double worst =
      worst_of_spots(slot, c, before, a, b, spots, m, n, k, b_by_k, b_by_n, alpha, beta, rounding, lost, of_spots);
  const Team team(m);
  for (index_t row = team.first; row < m; row += team.teams) {
    double of_a, sums[3];
    add_signed(team, c + row * n, n, slot.key, sums[0], sums[1]);
    add_product(team, a + row * k, k, y, of_a, sums[2]);
    sums[0] -= alpha * of_a;
    double of_before, squares_before[1] = {};
    if (beta != 0.0) {
      add_signed(team, before + row * n, n, slot.key, of_before, squares_before[0]);
      sums[0] -= beta * of_before;
      sum_over(team.size, squares_before);
    }
    sum_over(team.size, sums);
    if (team.rank != 0) continue;
    // |A||B| is at most the product of the norms of a row and a column.
    const double magnitude = fabs(alpha) * sqrt(sums[2] * *squares) + fabs(beta) * sqrt(squares_before[0]);
    const double of_rounding = rms_of_rounding * (rounding * sqrt(sums[1]) + lost * sqrt(static_cast<double>(n)));
    raise(worst, normalised(sums[0], chance * of_rounding, row_scale * magnitude));
  }
  write_check_result(slot, worst, of_spots, rms_scale);
}
