"""cuBLAS and cuBLASLt as references. Row-major C = A@B is column-major C^T = B^T A^T: the operands swap."""

import contextlib
import ctypes
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from nvmath import CudaDataType as Data
from nvmath.bindings import cublas
from nvmath.bindings import cublasLt as lt
from nvmath.bindings.cublas import ComputeType as Compute

from ladder.gpu.device import Launcher
from ladder.gpu.timing import Timer
from ladder.model.errors import LadderError

WORKSPACE_BYTES = (
    64 * 1024 * 1024
)  # more than the 32 MiB that cuBLAS recommends for Hopper, for both alike

_TYPES = {
    "fp64": (
        Data.CUDA_R_64F,
        Data.CUDA_R_64F,
        Compute.COMPUTE_64F,
        Data.CUDA_R_64F,
        np.float64,
    ),
    "fp32": (
        Data.CUDA_R_32F,
        Data.CUDA_R_32F,
        Compute.COMPUTE_32F,
        Data.CUDA_R_32F,
        np.float32,
    ),
    "tf32": (
        Data.CUDA_R_32F,
        Data.CUDA_R_32F,
        Compute.COMPUTE_32F_FAST_TF32,
        Data.CUDA_R_32F,
        np.float32,
    ),
    "fp16": (
        Data.CUDA_R_16F,
        Data.CUDA_R_16F,
        Compute.COMPUTE_32F,
        Data.CUDA_R_32F,
        np.float32,
    ),
    "fp16_acc16": (
        Data.CUDA_R_16F,
        Data.CUDA_R_16F,
        Compute.COMPUTE_16F,
        Data.CUDA_R_16F,
        np.float16,
    ),
    "bf16": (
        Data.CUDA_R_16BF,
        Data.CUDA_R_16BF,
        Compute.COMPUTE_32F,
        Data.CUDA_R_32F,
        np.float32,
    ),
    "fp8": (
        Data.CUDA_R_8F_E4M3,
        Data.CUDA_R_16BF,
        Compute.COMPUTE_32F,
        Data.CUDA_R_32F,
        np.float32,
    ),
}
"""dtype -> types of the operands, the result, the accumulation and the scalars, and the scalars' on the host."""

_CONFIGURATION = {
    "id": "ID",
    "tile": "TILE_ID",
    "stages": "STAGES_ID",
    "split-k": "SPLITK_NUM",
    "reduction": "REDUCTION_SCHEME",
    "swizzle": "CTA_SWIZZLING",
    "custom": "CUSTOM_OPTION",
    "inner": "INNER_SHAPE_ID",
    "cluster": "CLUSTER_SHAPE_ID",
}
"""Words for what cuBLASLt says of an algorithm: numbers, most of its enumerations."""


@dataclass(frozen=True)
class Gemm:
    """One GEMM with alpha = 1, beta = 0: pointers a, b, c, sizes m, n, k, dtype and layout (row-major)."""

    pointers: tuple[int, int, int]
    size: tuple[int, int, int]
    dtype: str
    layout: str


@cache
def _scalars(dtype: str) -> tuple[Any, int, int]:
    """alpha = 1 and beta = 0 on the host, and where each lies: kept, since launches point to them."""
    both = np.array([1, 0], _TYPES[dtype][4])
    return both, both.ctypes.data, both.ctypes.data + both.itemsize


def _described(algorithm: int, workspace_bytes: int) -> str:
    """The algorithm at an address, as far as cuBLASLt tells: `id 66 tile 20 stages 35` and so on."""
    words, written = [], ctypes.c_size_t()
    for word, name in _CONFIGURATION.items():
        attribute = lt.MatmulAlgoConfigAttribute[name]
        value = np.zeros(1, lt.get_matmul_algo_config_attribute_dtype(attribute))
        given = (
            algorithm,
            attribute,
            value.ctypes.data,
            value.nbytes,
            ctypes.addressof(written),
        )
        with contextlib.suppress(lt.cuBLASLtError):
            lt.matmul_algo_config_get_attribute(*given)
            words.append(f"{word} {value[0]}")
    return " ".join([*words, f"workspace {workspace_bytes}"])


class Libraries:
    """cuBLAS and cuBLASLt on a GPU's stream; of the latter the first `candidates` of its heuristic list."""

    def __init__(self, timer: Timer, candidates: int) -> None:
        self.gpu, self._candidates = timer.gpu, candidates
        self._workspace = self.gpu.allocate_guarded(
            "the workspace of the libraries", WORKSPACE_BYTES
        )
        self._cublas = cublas.create()
        cublas.set_stream(self._cublas, int(self.gpu.stream.handle))
        # A workspace of our own: the library then allocates nothing while a graph is captured.
        cublas.set_workspace(self._cublas, int(self._workspace.handle), WORKSPACE_BYTES)
        # Load cuBLAS's fp64 kernels now, so that no check pays for it.
        tile = self.gpu.allocate(8 * 128 * 128)
        tile.fill(
            0, stream=self.gpu.stream
        )  # else compute-sanitizer tells of what it reads
        pointer = int(tile.handle)
        self.cublas(Gemm((pointer, pointer, pointer), (128, 128, 128), "fp64", "NN"))()
        tile.close(self.gpu.stream)

    def cublas(self, gemm: Gemm) -> Launcher:
        """cuBLAS' own choice of algorithm (cublasGemmEx). Raises LadderError for fp8, which it does not have."""
        if gemm.dtype == "fp8":
            raise LadderError("cublasGemmEx has no fp8; cublaslt has")
        source, target, compute, _, _ = _TYPES[gemm.dtype]
        _, alpha, beta = _scalars(gemm.dtype)
        (a, b, c), (m, n, k), transposed = gemm.pointers, gemm.size, gemm.layout == "TN"
        sizes = (self._cublas, int(transposed), 0, n, m, k)
        operands = (
            alpha,
            b,
            source,
            k if transposed else n,
            a,
            source,
            k,
            beta,
            c,
            target,
            n,
        )
        return partial(cublas.gemm_ex, *sizes, *operands, compute, -1)

    def cublaslt(self, gemm: Gemm, fast: bool = False) -> dict[str, Launcher]:
        """cuBLASLt by its algorithms' names, in the order of its heuristic list.

        `fast` is fp8 without promotion of partial sums. Raises LadderError where there is none.
        """
        if fast and gemm.dtype != "fp8":
            raise LadderError("fast accumulation is a setting of fp8")
        return self._lt_candidates(gemm, fast)

    @cached_property
    def _lt(self) -> int:
        return int(lt.create())

    def _lt_candidates(self, gemm: Gemm, fast: bool) -> dict[str, Launcher]:
        """What can be used of the heuristic list, by name. Raises LadderError where there is none."""
        source, target, compute, scale, _ = _TYPES[gemm.dtype]
        (a, b, c), (m, n, k), transposed = gemm.pointers, gemm.size, gemm.layout == "TN"
        operation, flag = (
            lt.matmul_desc_create(compute, scale),
            ctypes.c_int32(transposed),
        )
        lt.matmul_desc_set_attribute(
            operation, lt.MatmulDescAttribute.TRANSA, ctypes.addressof(flag), 4
        )
        if fast:
            one = ctypes.c_int8(1)
            lt.matmul_desc_set_attribute(
                operation, lt.MatmulDescAttribute.FAST_ACCUM, ctypes.addressof(one), 1
            )
        rows, columns = (k, n) if transposed else (n, k)
        left = lt.matrix_layout_create(source, rows, columns, rows)
        right, result = (
            lt.matrix_layout_create(source, k, m, k),
            lt.matrix_layout_create(target, n, m, n),
        )
        preference = lt.matmul_preference_create()
        size = ctypes.c_uint64(WORKSPACE_BYTES)
        attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        lt.matmul_preference_set_attribute(
            preference, attribute, ctypes.addressof(size), 8
        )
        found = np.zeros(self._candidates, dtype=lt.matmul_heuristic_result_dtype)
        count = ctypes.c_int32(0)
        given = (operation, left, right, result, result, preference, self._candidates)
        try:
            lt.matmul_algo_get_heuristic(
                self._lt, *given, found.ctypes.data, ctypes.addressof(count)
            )
        except lt.cuBLASLtError as error:
            raise LadderError(
                f"cuBLASLt has no algorithm for this problem: {error}"
            ) from error
        usable = [index for index in range(count.value) if found["state"][index] == 0]
        if not usable:
            raise LadderError("cuBLASLt's heuristic list is empty for this problem")
        _, alpha, beta = _scalars(gemm.dtype)
        operands = (alpha, b, left, a, right, beta, c, result, c, result)
        where = (
            int(self._workspace.handle),
            WORKSPACE_BYTES,
            int(self.gpu.stream.handle),
        )
        first, handle = found.ctypes.data, self._lt

        def launch(index: int) -> None:
            lt.matmul(
                handle, operation, *operands, first + index * found.itemsize, *where
            )

        launchers: dict[str, Launcher] = {}
        for index in usable:
            name = _described(
                first + index * found.itemsize, int(found["workspace_size"][index])
            )
            while (
                name in launchers
            ):  # Several algorithms may report the same attributes.
                name += " again"
            launchers[name] = partial(launch, index)
        return launchers
