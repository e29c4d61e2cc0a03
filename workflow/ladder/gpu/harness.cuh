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

// What inputs are drawn with: without it they do not follow from one another.
using Key = unsigned long long;

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 128 bits for each
// index, which neighbours share.
__device__ uint4 philox(Key key, index_t index) {
  uint4 x = make_uint4(static_cast<unsigned>(index), static_cast<unsigned>(index >> 32), 0, 0);
  unsigned low = static_cast<unsigned>(key), high = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long left = 0xD2511F53ull * x.x, right = 0xCD9E8D57ull * x.z;
    x = make_uint4(static_cast<unsigned>(right >> 32) ^ x.y ^ low, static_cast<unsigned>(right),
                   static_cast<unsigned>(left >> 32) ^ x.w ^ high, static_cast<unsigned>(left));
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return x;
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

// So many elements share 128 bits: each has as many of its own as it takes in memory.
template <class T> constexpr int drawn_together = 16 / sizeof(T);

// Inputs are uniform in [-1, 1), uniform in [0, 1) so that errors of one sign add up, integers so that sums are exact, from
// -2 to 2 and where -1 is drawn (of fp8 one in 256) -3, or uniform times powers of two, so that a narrower range of exponents shows. For kernels that look for a
// maximum all are 1, one in 1024 is 128 times as large as the others, or every other one is -inf.
enum Kind { UNIFORM, POSITIVE, INTEGERS, WIDE, EQUAL, SPIKES, MASKED };

// Those powers: the lowest, and how many. Sums of thousands of products stay finite in the accumulator.
struct Powers {
  int lowest, number;
};
template <class T> constexpr Powers powers = {-32, 64};
template <> constexpr Powers powers<__nv_bfloat16> = {-24, 48};  // whose sums of squares are fp32
template <> constexpr Powers powers<__half> = {0, 4};
template <> constexpr Powers powers<__nv_fp8_e4m3> = {-3, 4};
template <> constexpr Powers powers<int> = {0, 14};

// Element `part` of those that share `bits`. All 24 bits of an fp32 are drawn; what is narrower is exact in fp32.
template <class T> __device__ T drawn(uint4 bits, int part, int kind) {
  constexpr int of_word = drawn_together<T> / 4, width = 32 / of_word;
  const int word = part / of_word;
  const unsigned own = word < 2 ? (word == 0 ? bits.x : bits.y) : (word == 2 ? bits.z : bits.w);
  unsigned low = own;
  float x;
  if constexpr (of_word == 1) {
    // Cut and not rounded, so that neither 1 nor -1 stands for more than its share.
    x = kind == POSITIVE ? __uint2float_rz(own) * 0x1p-32f : __int2float_rz(static_cast<int>(own)) * 0x1p-31f;
  } else {
    low = own >> (part % of_word * width) & ((1u << width % 32) - 1);
    // As the mantissa of a number in [2, 4): conversions from integers are slow.
    x = __uint_as_float(0x40000000u | low << (23 - width)) - 3.0f;
  }
  if (kind == UNIFORM) return from_float<T>(x);  // as timed launches have them: without a look at the others
  if (kind == POSITIVE && of_word > 1) x = 0.5f * x + 0.5f;
  if (kind == INTEGERS) x = truncf(3.0f * x);
  if (kind == WIDE) x *= __uint_as_float((127 + powers<T>.lowest + low % powers<T>.number) << 23);
  if (kind == EQUAL) x = 1.0f;
  if (kind == SPIKES && low % 1024 == 0) x *= 128.0f;
  if (kind == MASKED && low % 2 == 0) x = __uint_as_float(0xFF800000u);
  return from_float<T>(x);
}

// What sums of a type are made in: of a narrow one in fp32, which is far more exact than its products' bound.
template <class T> struct Sum {
  using type = float;
};
template <> struct Sum<float> {
  using type = double;
};
template <> struct Sum<Tf32> {
  using type = double;
};

__device__ double to_sum(float x) { return x; }
__device__ double to_sum(Tf32 x) { return x.value; }
__device__ float to_sum(__half x) { return __half2float(x); }
__device__ float to_sum(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float to_sum(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

template <class T> __device__ double to_double(T x) { return to_sum(x); }

template <class T, int count>
__device__ void to_sums(const T (&elements)[count], typename Sum<T>::type (&sums)[count]) {
  for (int one = 0; one < count; ++one) sums[one] = to_sum(elements[one]);
}
// In pairs, as the hardware converts fp8.
template <int count> __device__ void to_sums(const __nv_fp8_e4m3 (&elements)[count], float (&sums)[count]) {
  for (int one = 0; one + 1 < count; one += 2) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(elements[one].__x | elements[one + 1].__x << 8);
    const float2 both = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
    sums[one] = both.x;
    sums[one + 1] = both.y;
  }
  if constexpr (count % 2 == 1) sums[count - 1] = to_sum(elements[count - 1]);
}

__device__ index_t first_index() { return blockIdx.x * static_cast<index_t>(blockDim.x) + threadIdx.x; }
__device__ index_t grid_stride() { return static_cast<index_t>(gridDim.x) * blockDim.x; }

// Non-negative doubles order like their bit patterns, which atomicMax can compare; NaN becomes infinity.
__device__ void raise_to(double* maximum, double value) {
  const double safe = value == value ? value : __longlong_as_double(0x7FF0000000000000ll);
  atomicMax(reinterpret_cast<unsigned long long*>(maximum), __double_as_longlong(safe));
}

// Of a maximum that NaN reaches as well, as 1e300.
__device__ void raise(double& worst, double error) {
  if (!(error <= worst)) worst = error == error ? error : 1e300;
}

__device__ void raise_to_block(double* maximum, double value) {
  __shared__ double partial;
  if (threadIdx.x == 0) partial = 0.0;
  __syncthreads();
  raise_to(&partial, value);
  __syncthreads();
  if (threadIdx.x == 0) raise_to(maximum, partial);
}

__device__ void add_to_block(double* sum, double value) {
  __shared__ double partial;
  if (threadIdx.x == 0) partial = 0.0;
  __syncthreads();
  atomicAdd(&partial, value);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum, partial);
}

// Draws a whole buffer.
template <class T> __device__ void draw(T* data, index_t count, Key key, int kind) {
  constexpr int together = drawn_together<T>;
  struct alignas(together * sizeof(T)) Pack {
    T element[together];
  };
  for (index_t i = first_index(); i * together < count; i += grid_stride()) {
    const uint4 bits = philox(key, i);
    Pack pack;
    for (int part = 0; part < together; ++part) pack.element[part] = drawn<T>(bits, part, kind);
    if ((i + 1) * together <= count) {
      reinterpret_cast<Pack*>(data)[i] = pack;
    } else {
      // Over all parts, so that they stay in registers.
      for (int part = 0; part < together; ++part) {
        if (i * together + part < count) data[i * together + part] = pack.element[part];
      }
    }
  }
}

// Fills a buffer, which is aligned to 16 bytes, with ones: NaN in every type of floating point, and -1 in int32.
__device__ void poison(void* data, index_t bytes) {
  auto* chunks = static_cast<uint4*>(data);
  for (index_t i = first_index(); i < bytes / 16; i += grid_stride()) chunks[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
  for (index_t i = bytes / 16 * 16 + first_index(); i < bytes; i += grid_stride()) {
    static_cast<unsigned char*>(data)[i] = 0xFF;
  }
}

__device__ unsigned bits_of(float x) { return __float_as_uint(x); }
__device__ unsigned bits_of(Tf32 x) { return __float_as_uint(x.value); }
__device__ unsigned bits_of(__half x) { return __half_as_ushort(x); }
__device__ unsigned bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }
__device__ unsigned bits_of(__nv_fp8_e4m3 x) { return x.__x; }
__device__ unsigned bits_of(int x) { return static_cast<unsigned>(x); }

// 0, or 1e300 where an element of an input that was drawn is not as it was.
template <class T>
__device__ double error_of_input(const T* data, index_t at, Key key, int kind) {
  constexpr int together = drawn_together<T>;
  const T expected = drawn<T>(philox(key, at / together), at % together, kind);
  return bits_of(data[at]) == bits_of(expected) ? 0.0 : 1e300;
}

// Where the checks of one launch end up: their maximum, in `running` until all blocks are done, and its tag. A kernel under
// test cannot fake a result later, since it never sees the key.
struct CheckResultSlot {
  unsigned long long* running;  // bits of the maximum so far, number of blocks done, bits of a sum so far
  unsigned long long* result;   // bits of the maximum, tag
  unsigned long long key;
};

// Ends a checking kernel: raises the maximum, to `scale` times the root of the sum of `squares` as well if that is given; the
// last block writes the result and clears what was running.
__device__ void write_check_result(CheckResultSlot slot, double value, double squares = 0.0, double scale = 0.0) {
  raise_to_block(reinterpret_cast<double*>(slot.running), value);
  add_to_block(reinterpret_cast<double*>(slot.running + 2), squares);
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(slot.running + 1, 1ull) != gridDim.x - 1) return;
  double worst = __longlong_as_double(atomicExch(slot.running, 0ull));
  raise(worst, scale * sqrt(__longlong_as_double(atomicExch(slot.running + 2, 0ull))));
  slot.result[0] = __double_as_longlong(worst);
  slot.result[1] = mixed(slot.key, slot.result[0]);
  slot.running[1] = 0;
}

}  // namespace

// Ahead of the check of a launch: raises its maximum where an element of an input, of those that chance picks, is not as it
// was drawn.
template <class T>
__global__ void check_input(CheckResultSlot slot, const T* data, index_t elements, Key key, int kind) {
  const auto at = static_cast<index_t>(mixed(slot.key + 1, first_index()) % static_cast<Key>(elements));
  raise_to_block(reinterpret_cast<double*>(slot.running), error_of_input(data, at, key, kind));
}

template <class T> __global__ void fill(T* data, index_t count, Key key, int kind) {
  draw(data, count, key, kind);
}

// Counts elements that are not those of `fill`: inputs that a kernel wrote.
template <class T>
__global__ void count_changed(unsigned long long* count, const T* data, index_t elements, Key key,
                              int kind) {
  unsigned long long found = 0;
  for (index_t i = first_index(); i < elements; i += grid_stride()) found += error_of_input(data, i, key, kind) > 0.0;
  if (found) atomicAdd(count, found);
}

// Bytes next to a buffer: ahead of its first one, or behind its last.
struct Guard {
  const unsigned char* data;
  index_t bytes, behind;
};

// For each guard: how many bytes are not `filled`, and of the one nearest to the buffer its place counted from the far
// end, from 1 on. A block takes one of 16 slices of a guard at a time.
__global__ void count_guards_changed(unsigned long long* counts, double* nearest, const Guard* guards, index_t number,
                                     int filled) {
  constexpr int slices = 16;
  const unsigned word = 0x01010101u * filled;
  for (index_t item = blockIdx.x; item < number * slices; item += gridDim.x) {
    const Guard guard = guards[item / slices];
    const auto begin = reinterpret_cast<unsigned long long>(guard.data);
    const auto* chunks = reinterpret_cast<const uint4*>(begin & ~15ull);
    const index_t last = (begin % 16 + guard.bytes - 1) / 16;
    unsigned long long found = 0;
    double closest = 0.0;
    for (index_t i = item % slices * blockDim.x + threadIdx.x; i <= last; i += slices * blockDim.x) {
      const uint4 chunk = chunks[i];
      if (chunk.x == word && chunk.y == word && chunk.z == word && chunk.w == word) continue;
      for (int byte = 0; byte < 16; ++byte) {
        const index_t at = i * 16 + byte - static_cast<index_t>(begin % 16);
        if (at < 0 || at >= guard.bytes || guard.data[at] == filled) continue;
        ++found;
        closest = fmax(closest, static_cast<double>(guard.behind ? guard.bytes - at : at + 1));
      }
    }
    if (found) {
      atomicAdd(counts + item / slices, found);
      raise_to(nearest + item / slices, closest);
    }
  }
}

// Fills a block's shared memory, `bytes` of it, with ones, as `poison` does.
__global__ void scrub_shared(index_t bytes) {
  extern __shared__ volatile unsigned words[];
  for (index_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) words[i] = ~0u;
}

// For each multiprocessor its cycle counter and the global timer in ns, at 2 * its number.
__global__ void read_clocks(long long* found) {
  unsigned number;
  long long cycles, ns;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  found[2 * number] = cycles;
  found[2 * number + 1] = ns;
}

// Reads `count` chunks of zeros, and tells where they were not.
__global__ void read_through(const uint4* data, index_t count, unsigned* not_zero) {
  unsigned seen = 0;
  for (index_t i = first_index(); i < count; i += grid_stride()) {
    const uint4 chunk = data[i];
    seen |= chunk.x | chunk.y | chunk.z | chunk.w;
  }
  if (seen) *not_zero = 1;
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
