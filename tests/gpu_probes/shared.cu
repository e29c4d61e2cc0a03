// Leaves words in a block's shared memory, or counts those that are there already.

template <bool leaves> __global__ void shared_words(int words, unsigned* found) {
  extern __shared__ volatile unsigned memory[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    if constexpr (leaves) {
      memory[i] = 0x12345678;
    } else {
      if (memory[i] == 0x12345678) atomicAdd(found, 1u);
    }
  }
}
