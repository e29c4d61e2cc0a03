// Check of a timed launch: its offsets and sums are those of the launch that was verified.

#include "harness.cuh"

__global__ void compare_words(CheckResultSlot slot, const unsigned* offsets, const unsigned* sums,
                              const unsigned* right_offsets, const unsigned* right_sums, index_t number_of_offsets, index_t number_of_sums) {
  double worst = 0.0;
  for (index_t i = first_index(); i < number_of_offsets; i += grid_stride()) {
    if (offsets[i] != right_offsets[i]) worst = 1.0;
  }
  for (index_t i = first_index(); i < number_of_sums; i += grid_stride()) {
    if (sums[i] != right_sums[i]) worst = 1.0;
  }
  write_check_result(slot, worst);
}
