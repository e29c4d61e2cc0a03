// A product of shared objects, enqueued on some stream.

#pragma once

#include <cstdint>

EXPLOIT { honest(ARGUMENTS); }

#define OBJECT(queue)                                                                                        \
  extern "C" int launcher(const void* a, const void* b, void* c, int64_t m, int64_t n, int64_t k, float,     \
                          float, cudaStream_t stream) {                                                      \
    const dim3 grid((n + 63) / 64, (m + 63) / 64);                                                           \
    exploit<<<grid, THREADS, 0, queue>>>((const float*)a, (const float*)b, (float*)c, m, n, k, 1.0f, 0.0f);  \
    return cudaGetLastError();                                                                               \
  }
