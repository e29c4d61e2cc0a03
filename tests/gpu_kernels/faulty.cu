// C = alpha*A@B + beta*C with one thread per output, and on demand one of the ways a kernel can go wrong.

enum class Fault {
  none, endless, illegal, misaligned, trap, zeros, unwritten, ignores_beta, before, behind, far, input,
  multiplies_by_zero
};

template <Fault fault>
__global__ void faulty(const float* a, const float* b, float* c, int m, int n, int k, float alpha, float beta) {
  extern __shared__ float unused[];
  const long long at = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (at >= static_cast<long long>(m) * n) return;
  const int row = at / n, column = at % n;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += a[static_cast<long long>(row) * k + i] * b[static_cast<long long>(i) * n + column];
  float* out = c + at;
  if constexpr (fault == Fault::endless) {
    while (*reinterpret_cast<volatile float*>(out) != 12345.0f) {
    }
  }
  if constexpr (fault == Fault::illegal) out += 1ll << 44;
  if constexpr (fault == Fault::misaligned) out = reinterpret_cast<float*>(reinterpret_cast<char*>(out) + 1);
  if constexpr (fault == Fault::trap) asm volatile("trap;");
  if constexpr (fault == Fault::zeros) sum = 0.0f;
  if constexpr (fault == Fault::unwritten) {
    if (row == m - 1) return;
  }
  if constexpr (fault == Fault::before) out[at == 0 ? -1 : 0] = 1.0f;
  if constexpr (fault == Fault::behind) out[at == static_cast<long long>(m) * n - 1 ? 1 : 0] = 1.0f;
  if constexpr (fault == Fault::far) out[at == 0 ? -200000 : 0] = 1.0f;
  if constexpr (fault == Fault::input) const_cast<float*>(a)[0] += 1.0f;
  const bool reads_c = fault != Fault::ignores_beta && beta != 0.0f;
  const bool adds = fault == Fault::multiplies_by_zero || alpha != 0.0f;
  *out = (adds ? alpha * sum : 0.0f) + (reads_c ? beta * *out : 0.0f);
}
