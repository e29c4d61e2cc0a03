"""CUB's DeviceReduce as a reference for the problem reduction.

nvcc compiles it for the GPU at hand when it is first asked for, with the CUB of its own toolkit, and keeps what it made
in .cache/references. CUB's Python package makes the same kernels, but needs numba's compiler beside it.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from cuda.core import Device

SOURCE = r"""
#include <cstdint>

#include <cub/device/device_reduce.cuh>
#include <cuda_bf16.h>
#include <cuda/std/functional>

struct Storage {
    void* pointer = nullptr;
    size_t bytes = 0;
};

template <class T>
cudaError_t sum(Storage& storage, const void* input, void* output, int64_t elements, cudaStream_t stream) {
    const auto numbers = static_cast<const T*>(input);
    return cub::DeviceReduce::Reduce(storage.pointer, storage.bytes, numbers, static_cast<float*>(output),
                                     elements, cuda::std::plus<float>{}, 0.0f, stream);
}

// The first call without storage asks how much there must be.
template <class T>
int prepare(void** state, int64_t elements) {
    auto* storage = new Storage;
    *state = storage;
    if (const auto error = sum<T>(*storage, nullptr, nullptr, elements, nullptr)) return error;
    return cudaMalloc(&storage->pointer, storage->bytes);
}

#define SUM_OF(dtype, T)                                                                                        \
    extern "C" int prepare_##dtype(void** state, int64_t elements) { return prepare<T>(state, elements); }      \
    extern "C" int sum_##dtype(void* state, const void* input, void* output, int64_t elements,                  \
                               void* stream) {                                                                  \
        return sum<T>(*static_cast<Storage*>(state), input, output, elements, static_cast<cudaStream_t>(stream)); \
    }
SUM_OF(fp32, float)
SUM_OF(bf16, __nv_bfloat16)
"""

KEPT = Path(__file__).resolve().parents[2] / ".cache" / "references"


def compiled(arch):
    """The shared object, made where it is missing. Raises where there is no nvcc, or where that fails."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        raise FileNotFoundError("nvcc, of a CUDA toolkit")
    version = subprocess.run([nvcc, "--version"], capture_output=True, check=True).stdout
    made_from = hashlib.sha256(version + arch.encode() + SOURCE.encode()).hexdigest()[:16]
    made = KEPT / f"cub_sum-{made_from}.so"
    if not made.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        source, own = (KEPT / f"cub_sum-{os.getpid()}{ending}" for ending in (".cu", ".so"))
        source.write_text(SOURCE, encoding="utf-8")
        flags = ["-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", f"-arch={arch}"]
        done = subprocess.run([nvcc, *flags, source, "-o", own], capture_output=True, text=True)
        source.unlink()
        if done.returncode:
            raise RuntimeError(f"nvcc: {done.stderr[:300]}")
        own.replace(made)
    return made


_LIBRARY, _STORAGE = [], {}


def total(problem, buffers, sizes, scalars, stream):
    if not _LIBRARY:
        _LIBRARY.append(ctypes.CDLL(str(compiled("sm_{}{}".format(*Device().compute_capability)))))
    elements = ctypes.c_int64(sizes["elements"])
    key = problem.dtype, sizes["elements"]
    if key not in _STORAGE:
        state = ctypes.c_void_p()
        if error := getattr(_LIBRARY[0], f"prepare_{problem.dtype}")(ctypes.byref(state), elements):
            raise RuntimeError(f"no storage: CUDA error {error}")
        _STORAGE[key] = state
    pointers = (ctypes.c_void_p(buffers[name].pointer) for name in ("input", "output"))
    given = (_STORAGE[key], *pointers, elements, ctypes.c_void_p(stream))
    entry = getattr(_LIBRARY[0], f"sum_{problem.dtype}")

    def launch():
        if error := entry(*given):
            raise RuntimeError(f"CUDA error {error}")

    return launch
