// 64 bytes of A in reverse order to C, and one of the faults that compute-sanitizer looks for, or a trap.

enum class Fault { none, race, outside, uninitialised, trap };

template <Fault fault>
__global__ void unsafe(const unsigned char* a, const unsigned char*, unsigned char* c, int m, int k) {
  constexpr long long element_bytes = 4;  // of tf32, whose kernel reads behind A
  __shared__ unsigned char tile[64];
  const int lane = threadIdx.x;
  tile[lane] = a[fault == Fault::outside ? m * element_bytes * k - 1 + lane : lane];
  if constexpr (fault != Fault::race) __syncthreads();
  if constexpr (fault == Fault::trap) asm volatile("trap;");
  const unsigned char before = fault == Fault::uninitialised ? c[lane] : 0;
  c[lane] = tile[63 - lane] + before;
}
