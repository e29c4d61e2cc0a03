// Kernels of the measuring harness that every problem needs: inputs drawn on the device, a gate that holds a stream, a
// read that cleans the L2. A problem's own check.cu includes this and compares outputs with a higher-precision answer.

#pragma once

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

// Counts elements that are not those of fill_uniform: inputs that a kernel wrote.
template <class T>
__global__ void count_changed(unsigned long long* count, const T* data, index_t elements, unsigned long long seed) {
  unsigned long long found = 0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) {
    const T drawn = from_float<T>(uniform(seed, i));
    const auto* one = reinterpret_cast<const unsigned char*>(&drawn);
    const auto* other = reinterpret_cast<const unsigned char*>(data + i);
    bool same = true;
    for (int byte = 0; byte < sizeof(T); ++byte) same = same && one[byte] == other[byte];
    found += !same;
  }
  if (found) atomicAdd(count, found);
}

// Counts bytes that are not `filled`; of the one nearest to the buffer, which lies behind the last byte or, if `behind`,
// ahead of the first, `nearest` is its place counted from the far end, from 1 on.
__global__ void count_bytes_changed(double* nearest, unsigned long long* count, const unsigned char* data, index_t bytes,
                                    int filled, int behind) {
  unsigned long long found = 0;
  double closest = 0.0;
  for (index_t i = first_index(); i < bytes; i += grid_stride()) {
    if (data[i] == filled) continue;
    ++found;
    closest = fmax(closest, static_cast<double>(behind ? bytes - i : i + 1));
  }
  if (found) atomicAdd(count, found);
  raise_to_block(nearest, closest);
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

// What a launch costs that does nothing: the floor of every time.
__global__ void nothing() {}
