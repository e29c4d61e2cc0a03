// Reads `count` numbers, so that the L2 keeps them as long as it can, or as any other.

template <bool keeps> __global__ void keeps_in_l2(const float* data, long long count, float* never) {
  unsigned long long policy = 0;
  if constexpr (keeps) asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  float sum = 0.0f;
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < count; i += step) {
    float value;
    if constexpr (keeps) {
      asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(data + i), "l"(policy));
    } else {
      asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(data + i));
    }
    sum += value;
  }
  if (sum == 12345.0f) *never = sum;
}
