// Kernels of the measuring harness: inputs drawn on the device, outputs compared there with a higher-precision answer,
// and a gate that holds a stream.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace {

using index_t = long long;

// SplitMix64 (Steele, Lea, Flood 2014): every index gets its own well-mixed 64 bits, whatever the launch geometry.
__device__ unsigned long long mixed(unsigned long long seed, index_t index) {
  unsigned long long z = seed * 0xD1342543DE82EF95ull + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Uniform in [-1, 1) with 24 bits, so that it is exact in fp32.
__device__ float uniform(unsigned long long seed, index_t index) {
  return static_cast<float>(mixed(seed, index) >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

struct Tf32 {
  float value;
};

template <class T> __device__ T from_float(float x);
template <> __device__ float from_float<float>(float x) { return x; }
template <> __device__ Tf32 from_float<Tf32>(float x) {
  // Inputs are exact in tf32: 10 bits of mantissa, so that tensor cores and reference see the same numbers.
  return {__uint_as_float(__float_as_uint(x) & 0xFFFFE000u)};
}
template <> __device__ __half from_float<__half>(float x) { return __float2half_rn(x); }
template <> __device__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __nv_fp8_e4m3 from_float<__nv_fp8_e4m3>(float x) { return __nv_fp8_e4m3(x); }
template <> __device__ int from_float<int>(float x) { return static_cast<int>(x * 1000.0f); }

__device__ double to_double(float x) { return x; }
__device__ double to_double(Tf32 x) { return x.value; }
__device__ double to_double(__half x) { return __half2float(x); }
__device__ double to_double(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ double to_double(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

__device__ index_t first_index() { return blockIdx.x * static_cast<index_t>(blockDim.x) + threadIdx.x; }
__device__ index_t grid_stride() { return static_cast<index_t>(gridDim.x) * blockDim.x; }

// Non-negative doubles order like their bit patterns, which atomicMax can compare; NaN becomes infinity.
__device__ void raise_to(double* maximum, double value) {
  const double safe = value == value ? value : __longlong_as_double(0x7FF0000000000000ll);
  atomicMax(reinterpret_cast<unsigned long long*>(maximum), __double_as_longlong(safe));
}

__device__ void raise_to_block(double* maximum, double value) {
  __shared__ double partial;
  if (threadIdx.x == 0) partial = 0.0;
  __syncthreads();
  raise_to(&partial, value);
  __syncthreads();
  if (threadIdx.x == 0) raise_to(maximum, partial);
}

}  // namespace

template <class T> __global__ void fill_uniform(T* data, index_t count, unsigned long long seed) {
  for (index_t i = first_index(); i < count; i += grid_stride()) data[i] = from_float<T>(uniform(seed, i));
}

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
// `rounding`) does not explain, over |alpha| (|A||B|) + |beta| |C0|; e = alpha AB + beta C0.
template <class T>
__global__ void compare_product(double* maximum, const T* c, const T* before, const double* product,
                                const double* magnitude, index_t rows, index_t columns, index_t row_stride,
                                index_t column_stride, double alpha, double beta, double rounding) {
  double worst = 0.0;
  for (index_t i = first_index(); i < rows * columns; i += grid_stride()) {
    const index_t at = i / columns * row_stride + i % columns * column_stride;
    const double prior = beta != 0.0 ? beta * to_double(before[at]) : 0.0;
    const double expected = alpha * product[i] + prior;
    const double scale = fabs(alpha) * magnitude[i] + fabs(prior);
    const double error = fabs(to_double(c[at]) - expected) - rounding * fabs(expected);
    const double normalised = error > 0.0 ? error / scale : (error == error ? 0.0 : error);
    if (!(normalised <= worst)) worst = normalised == normalised ? normalised : 1e300;
  }
  raise_to_block(maximum, worst);
}

// Reads `count` chunks of zeros; the compiler must think that it could write.
__global__ void read_through(const uint4* data, index_t count, unsigned* never) {
  unsigned seen = 0;
  for (index_t i = first_index(); i < count; i += grid_stride()) {
    const uint4 chunk = data[i];
    seen |= chunk.x | chunk.y | chunk.z | chunk.w;
  }
  if (seen) *never = seen;
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

// out[i] = mean(in[i .. i+k]): sums in 64 bits; the largest |out - mean| over the mean of |in| is the error. Outputs
// from `elements - k` on must still be poison: nobody may write there.
template <class T>
__global__ void compare_stencil(double* maximum, unsigned long long* strays, const T* in, const T* out,
                                index_t elements, int k, unsigned poison) {
  double worst = 0.0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    if (i >= elements - k) {
      if (reinterpret_cast<const unsigned*>(out)[i] != poison) atomicAdd(strays, 1ull);
      continue;
    }
    double error;
    if constexpr (T(1) / T(2) == T(0)) {  // integers: the mean is truncated, as C++ divides
      long long sum = 0;
      for (int t = 0; t <= k; ++t) sum += in[i + t];
      error = fabs(static_cast<double>(out[i]) - static_cast<double>(sum / (k + 1)));
    } else {
      double sum = 0.0, size = 0.0;
      for (int t = 0; t <= k; ++t) {
        sum += in[i + t];
        size += fabs(static_cast<double>(in[i + t]));
      }
      error = size > 0.0 ? fabs(out[i] - sum / (k + 1)) / (size / (k + 1)) : fabs(static_cast<double>(out[i]));
    }
    if (!(error <= worst)) worst = error == error ? error : 1e300;
  }
  raise_to_block(maximum, worst);
}

// Ends when the host has written `ticket` to words[0]; after `limit` ns it says so in words[1] and ends as well.
__global__ void gate(volatile int* words, int ticket, long long limit) {
  long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  while (words[0] != ticket) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - begin > limit) {
      words[1] = 1;
      return;
    }
  }
}
