// Checks of a transposition: every output, bit for bit, of timed launches too. What an output must be is drawn again, so
// that nothing is read which a kernel could have written but the output itself.

#include "harness.cuh"

namespace {

// How many outputs of those that this thread looks at are not what was drawn. It takes elements of one row of the input
// that share 128 bits. Neighbouring threads take neighbouring rows, so that they read neighbouring outputs.
template <class T>
__device__ unsigned long long wrong_outputs(const T* output, index_t rows, index_t columns, Key key, int kind) {
  constexpr int together = drawn_together<T>;
  const index_t of_row = (columns + together - 2) / together + 1;  // at most: a row may begin and end within 128 bits
  unsigned long long wrong = 0;
  for (index_t i = first_index(); i < rows * of_row; i += grid_stride()) {
    const index_t row = i % rows, begin = row * columns, pack = begin / together + i / rows;
    const index_t first = pack * together - begin;  // column
    if (first >= columns) continue;
    const uint4 bits = philox(key, pack);
    for (int part = 0; part < together; ++part) {
      const index_t column = first + part;
      if (column < 0 || column >= columns) continue;
      wrong += bits_of(output[column * rows + row]) != bits_of(drawn<T>(bits, part, kind));
    }
  }
  return wrong;
}

}  // namespace

template <class T>
__global__ void count_wrong(unsigned long long* count, const T* output, index_t rows, index_t columns, Key key,
                            int kind) {
  const unsigned long long wrong = wrong_outputs(output, rows, columns, key, kind);
  if (wrong) atomicAdd(count, wrong);
}

// The same of a timed launch, whose error is 1 where one output is wrong.
template <class T>
__global__ void check_outputs(CheckResultSlot slot, const T* output, index_t rows, index_t columns, Key key, int kind) {
  write_check_result(slot, wrong_outputs(output, rows, columns, key, kind) ? 1.0 : 0.0);
}
