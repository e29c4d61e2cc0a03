// Checks of an attention: rows of the output against fp64. Untimed, every row; behind a timed launch, rows that nobody
// could foresee, and whether any output is NaN, as what was not written is. Queries, keys and values are drawn again, so
// that nothing is read which a kernel could have written but the output itself. bounds.py says what is allowed.

#include "harness.cuh"

namespace {

constexpr int rows = 4;       // neighbours of one head, which share the keys and values that are drawn: a group
constexpr int threads = 256;  // of a block, a group at a time
constexpr double exponent_loss = 0x1p-21;  // of an exponential, twice what ex2.approx loses
constexpr double largest_exponent = 300.0;  // so that a square stays finite: far more than is ever allowed

// Of a launch: what its inputs were drawn with, and what is allowed.
struct Inputs {
  index_t heads, sequence, causal;
  Key q, k, v;
  int kind, kind_of_values;
};
struct Allowance {
  double of_output, of_weight, of_logit, smallest, times;
};

// Elements 8 * pack to 8 * pack + 7 of what was drawn: of 8 bits sixteen are drawn together.
template <class T> __device__ void draw_pack(double (&to)[8], Key key, index_t pack, int kind) {
  constexpr int together = drawn_together<T> / 8;
  const uint4 bits = philox(key, pack / together);
  const int first = static_cast<int>(pack % together) * 8;
  for (int part = 0; part < 8; ++part) to[part] = to_double(drawn<T>(bits, first + part, kind));
}

// The logits of a key with each query of a group, and the norm of the key over sqrt(d).
template <class T, int d>
__device__ double logits_of(index_t key_row, const double (&queries)[rows][d], const Inputs& in, double (&to)[rows]) {
  double square = 0.0;
  for (int row = 0; row < rows; ++row) to[row] = 0.0;
  for (int pack = 0; pack < d / 8; ++pack) {
    double key[8];
    draw_pack<T>(key, in.k, key_row * (d / 8) + pack, in.kind);
    for (int part = 0; part < 8; ++part) {
      square += key[part] * key[part];
      for (int row = 0; row < rows; ++row) to[row] += queries[row][8 * pack + part] * key[part];
    }
  }
  const double scale = 1.0 / sqrt(static_cast<double>(d));
  for (int row = 0; row < rows; ++row) to[row] *= scale;
  return sqrt(square) * scale;
}

// The largest error of the rows from `first` on of a head, over what is allowed. To `of_errors` are added those of errors
// over the root sum of squares of what each rounding may do.
template <class T, class O, int d>
__device__ double error_of_group(const O* output, index_t head, index_t first, const Inputs& in, const Allowance& by,
                                 double& of_errors) {
  enum Total { ALL, LEAST, SQUARES };  // of a row's weights; the least that their sum may be; of their errors' squares
  __shared__ double queries[rows][d], weights[rows][threads], squares[rows][threads];
  __shared__ double made[rows][d], spread[rows][d], totals[rows][3], norm[rows], largest[rows], loss_of_largest[rows];
  const int thread = threadIdx.x;
  const index_t begin = head * in.sequence, visible = in.causal ? first + 1 : in.sequence;  // of the first row
  const index_t keys = in.causal ? first + rows : in.sequence;  // of the last row, be it behind the sequence

  __syncthreads();  // the group before is done
  for (int at = thread; at < rows * d; at += threads) (&made[0][0])[at] = (&spread[0][0])[at] = 0.0;
  if (thread < rows * 3) (&totals[0][0])[thread] = 0.0;
  if (thread < rows * d / 8) {
    double query[8];
    draw_pack<T>(query, in.q, (begin + first) * (d / 8) + thread, in.kind);
    for (int part = 0; part < 8; ++part) (&queries[0][0])[8 * thread + part] = query[part];
  }
  if (thread < rows) largest[thread] = __longlong_as_double(0xFFF0000000000000ll), loss_of_largest[thread] = 0.0;
  __syncthreads();
  if (thread < rows) {
    double square = 0.0;
    for (int column = 0; column < d; ++column) square += queries[thread][column] * queries[thread][column];
    norm[thread] = sqrt(square);
  }

  // The largest logit of each row, and the norm of its key.
  double own[rows], norm_of_own[rows];
  for (int row = 0; row < rows; ++row) own[row] = largest[row], norm_of_own[row] = 0.0;
  for (index_t key = thread; key < keys; key += threads) {
    double logits[rows];
    const double norm_of_key = logits_of<T, d>(begin + key, queries, in, logits);
    for (int row = 0; row < rows; ++row) {
      if (key < visible + in.causal * row && logits[row] > own[row]) own[row] = logits[row], norm_of_own[row] = norm_of_key;
    }
  }
  for (int row = 0; row < rows; ++row) weights[row][thread] = own[row];
  __syncthreads();
  if (thread < rows) {
    for (int one = 0; one < threads; ++one) largest[thread] = fmax(largest[thread], weights[thread][one]);
  }
  __syncthreads();
  for (int row = 0; row < rows; ++row) {
    if (own[row] == largest[row]) raise_to(&loss_of_largest[row], exponent_loss + by.of_logit * norm[row] * norm_of_own[row]);
  }
  __syncthreads();

  // Sums over the keys: 256 at a time, of each of which a thread has the weights; then a thread has eight columns.
  double all[rows] = {}, least[rows] = {}, of_squares[rows] = {}, sums[rows][8] = {}, spreads[rows][8] = {};
  constexpr int packs = d / 8, slices = threads / packs;
  for (index_t base = 0; base < keys; base += threads) {
    const index_t key = base + thread;
    double logits[rows] = {};
    const double norm_of_key = key < keys ? logits_of<T, d>(begin + key, queries, in, logits) : 0.0;
    for (int row = 0; row < rows; ++row) {
      const double below = logits[row] - largest[row];
      const bool seen = key < keys && key < visible + in.causal * row;
      const double weight = seen ? exp(below) : 0.0;
      const double of_logit = exponent_loss + by.of_logit * norm[row] * norm_of_key;
      double loss = sqrt(of_logit * of_logit + loss_of_largest[row] * loss_of_largest[row]);
      if (below == 0.0) loss = 0.0;
      const double more = exp(fmin(below + loss, largest_exponent));
      const double rounding = by.of_weight * fmax(weight, by.smallest);
      weights[row][thread] = weight;
      squares[row][thread] = seen ? rounding * rounding + (more - weight) * (more - weight) : 0.0;
      all[row] += weight;
      least[row] += seen ? exp(below - loss) : 0.0;
      of_squares[row] += squares[row][thread];
    }
    __syncthreads();
    const int together = static_cast<int>(min(keys - base, static_cast<index_t>(threads)));
    for (int one = thread / packs; one < together; one += slices) {
      double values[8];
      draw_pack<T>(values, in.v, (begin + base + one) * packs + thread % packs, in.kind_of_values);
      for (int row = 0; row < rows; ++row) {
        for (int part = 0; part < 8; ++part) {
          sums[row][part] += weights[row][one] * values[part];
          spreads[row][part] += squares[row][one] * (values[part] * values[part]);
        }
      }
    }
    __syncthreads();
  }
  for (int row = 0; row < rows; ++row) {
    atomicAdd(&totals[row][ALL], all[row]);
    atomicAdd(&totals[row][LEAST], least[row]);
    atomicAdd(&totals[row][SQUARES], of_squares[row]);
    for (int part = 0; part < 8; ++part) {
      atomicAdd(&made[row][thread % packs * 8 + part], sums[row][part]);
      atomicAdd(&spread[row][thread % packs * 8 + part], spreads[row][part]);
    }
  }
  __syncthreads();

  double worst = 0.0;
  for (int at = thread; at < rows * d; at += threads) {
    const int row = at / d, column = at % d;
    if (first + row >= in.sequence) continue;
    const double right = made[row][column] / totals[row][ALL], size = fabs(right);
    const double times = fmin(by.times, sqrt(static_cast<double>(visible + in.causal * row)));
    const double of_values = sqrt(spread[row][column]) / totals[row][LEAST];
    const double of_sum = size * sqrt(totals[row][SQUARES]) / totals[row][LEAST];
    const double of_output = by.of_output * fmax(size, by.smallest);
    const double error = fabs(to_double(output[(begin + first + row) * d + column]) - right);
    raise(worst, error / (of_output + times * (of_values + of_sum)));
    of_errors += error * error / (of_output * of_output + of_values * of_values + of_sum * of_sum);
  }
  return worst;
}

}  // namespace

// Every row.
template <class T, class O, int d>
__global__ void compare_rows(double* maximum, double* squares, const O* output, index_t heads, index_t sequence, index_t causal, Key q,
                             Key k, Key v, int kind, int kind_of_values, double of_output, double of_weight,
                             double of_logit, double smallest, double times) {
  const Inputs in = {heads, sequence, causal, q, k, v, kind, kind_of_values};
  const Allowance by = {of_output, of_weight, of_logit, smallest, times};
  const index_t of_head = (in.sequence + rows - 1) / rows;
  double worst = 0.0, of_errors = 0.0;
  for (index_t group = blockIdx.x; group < in.heads * of_head; group += gridDim.x) {
    raise(worst, error_of_group<T, O, d>(output, group / of_head, group % of_head * rows, in, by, of_errors));
  }
  raise_to_block(maximum, worst);
  add_to_block(squares, of_errors);
}

// A group of rows that each block draws by the slot's key, and of all outputs whether they are numbers. `rms_scale` makes
// the root of the sum of squares comparable with the largest error.
template <class T, class O, int d>
__global__ void check_rows(CheckResultSlot slot, const O* output, index_t heads, index_t sequence, index_t causal, Key q,
                           Key k, Key v, int kind, int kind_of_values, double of_output, double of_weight,
                           double of_logit, double smallest, double times, double rms_scale) {
  const Inputs in = {heads, sequence, causal, q, k, v, kind, kind_of_values};
  const Allowance by = {of_output, of_weight, of_logit, smallest, times};
  struct alignas(16) Pack {
    O element[8];
  };
  const index_t of_head = (in.sequence + rows - 1) / rows, packs = in.heads * in.sequence * (d / 8);
  const index_t group = static_cast<index_t>(mixed(slot.key, blockIdx.x) % static_cast<Key>(in.heads * of_head));
  double of_errors = 0.0;
  double worst = error_of_group<T, O, d>(output, group / of_head, group % of_head * rows, in, by, of_errors);
  for (index_t at = first_index(); at < packs; at += grid_stride()) {
    const Pack pack = reinterpret_cast<const Pack*>(output)[at];
    for (int part = 0; part < 8; ++part) raise(worst, to_sum(pack.element[part]) * 0.0f == 0.0f ? 0.0 : 1e300);
  }
  write_check_result(slot, worst, of_errors, rms_scale);
}
