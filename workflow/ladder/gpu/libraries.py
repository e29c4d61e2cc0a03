"""cuBLAS and cuBLASLt as references, through nvmath-python's bindings.

Row-major C = A@B is column-major C^T = B^T A^T: the operands swap and their transposition flags stay.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from nvmath import CudaDataType as Data
from nvmath.bindings import cublas
from nvmath.bindings import cublasLt as lt
from nvmath.bindings.cublas import ComputeType as Compute

from ladder.gpu.device import Launcher
from ladder.gpu.timing import Timer
from ladder.model.errors import LadderError

WORKSPACE_BYTES = 64 * 1024 * 1024
"""More than the 32 MiB that cuBLAS recommends for Hopper, for both libraries alike."""


@dataclass(frozen=True)
class Product:
    """One GEMM: pointers, sizes, dtype, layout, scalars (row-major)."""

    a: int
    b: int
    c: int
    m: int
    n: int
    k: int
    dtype: str
    layout: str
    alpha: float = 1.0
    beta: float = 0.0


def _types(dtype: str) -> tuple[int, int, int, int, type[Any]]:
    """(input type, output type, compute type, scale type, ctypes scalar) of a dtype."""
    f32, f16, bf16 = Data.CUDA_R_32F, Data.CUDA_R_16F, Data.CUDA_R_16BF
    table = {
        "fp64": (Data.CUDA_R_64F, Data.CUDA_R_64F, Compute.COMPUTE_64F, Data.CUDA_R_64F, ctypes.c_double),
        "fp32": (f32, f32, Compute.COMPUTE_32F, f32, ctypes.c_float),
        "tf32": (f32, f32, Compute.COMPUTE_32F_FAST_TF32, f32, ctypes.c_float),
        "fp16": (f16, f16, Compute.COMPUTE_32F, f32, ctypes.c_float),
        "fp16_acc16": (f16, f16, Compute.COMPUTE_16F, f16, ctypes.c_uint16),
        "bf16": (bf16, bf16, Compute.COMPUTE_32F, f32, ctypes.c_float),
        "fp8": (Data.CUDA_R_8F_E4M3, bf16, Compute.COMPUTE_32F, f32, ctypes.c_float),
    }
    source, target, compute, scale, scalar = table[dtype]
    return int(source), int(target), int(compute), int(scale), scalar


def _scalar(kind: type[Any], value: float) -> Any:
    if kind is ctypes.c_uint16:
        return ctypes.c_uint16(int(np.float16(value).view(np.uint16)))
    return kind(value)


class Libraries:
    """Handles of cuBLAS and cuBLASLt on one GPU's stream, the latter made when first needed.

    cuBLASLt's algorithm is the fastest of the first `candidates` of its heuristic list.
    """

    def __init__(self, timer: Timer, candidates: int) -> None:
        self.timer, self.gpu, self._candidates = timer, timer.gpu, candidates
        self._workspace = self.gpu.allocate(WORKSPACE_BYTES)
        self._cublas = cublas.create()
        self._lt: int | None = None
        cublas.set_stream(self._cublas, int(self.gpu.stream.handle))
        # A workspace of our own: the library then allocates nothing while a graph is captured.
        cublas.set_workspace(self._cublas, int(self._workspace.handle), WORKSPACE_BYTES)
        self._warm_up()

    def _warm_up(self) -> None:
        """Load cuBLAS's fp64 kernels now, so that no check pays for it."""
        tile = self.gpu.allocate(8 * 128 * 128)
        pointer = int(tile.handle)
        self.cublas(Product(pointer, pointer, pointer, 128, 128, 128, "fp64", "NN"))()
        tile.close(self.gpu.stream)

    def cublas(self, product: Product) -> Launcher:
        """cuBLAS' own choice of algorithm (cublasGemmEx). Raises LadderError for fp8, which it lacks."""
        if product.dtype == "fp8":
            raise LadderError("cublasGemmEx has no fp8; cublaslt has")
        source, target, compute, _, kind = _types(product.dtype)
        alpha, beta = _scalar(kind, product.alpha), _scalar(kind, product.beta)
        m, n, k = product.m, product.n, product.k
        transposed = product.layout == "TN"
        scalars = ctypes.addressof(alpha), ctypes.addressof(beta)
        left = (product.b, source, k if transposed else n)
        right = (product.a, source, k)
        sizes = (self._cublas, int(transposed), 0, n, m, k)
        arguments = (*sizes, scalars[0], *left, *right, scalars[1], product.c, target, n, compute, -1)

        def run(keep: tuple[Any, ...] = (alpha, beta)) -> None:
            cublas.gemm_ex(*arguments)

        return run

    def cublaslt(self, product: Product) -> Launcher:
        """The fastest of cuBLASLt's candidates. Raises LadderError where it has none for the problem."""
        launchers = self._lt_candidates(product)
        times = self.timer.quick(launchers)
        return launchers[times.index(min(times))]

    def _lt_candidates(self, product: Product) -> list[Launcher]:
        if self._lt is None:
            self._lt = lt.create()
        described = _describe(product)
        preference = lt.matmul_preference_create()
        size = ctypes.c_uint64(WORKSPACE_BYTES)
        attribute = int(lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES)
        lt.matmul_preference_set_attribute(preference, attribute, ctypes.addressof(size), 8)
        found = np.zeros(self._candidates, dtype=lt.matmul_heuristic_result_dtype)
        count = ctypes.c_int32(0)
        layouts = (described.left, described.right, described.result, described.result)
        places = (found.ctypes.data, ctypes.addressof(count))
        try:
            lt.matmul_algo_get_heuristic(
                self._lt, described.operation, *layouts, preference, self._candidates, *places
            )
        except lt.cuBLASLtError as error:
            raise LadderError(f"cuBLASLt has no algorithm for this problem: {error}") from error
        usable = [index for index in range(count.value) if found["state"][index] == 0]
        if not usable:
            raise LadderError("cuBLASLt's heuristic list is empty for this problem")
        return [self._lt_launcher(product, described, found, index) for index in usable]

    def _lt_launcher(self, product: Product, described: _Described, found: Any, index: int) -> Launcher:
        kind = _types(product.dtype)[4]
        alpha, beta = _scalar(kind, product.alpha), _scalar(kind, product.beta)
        inputs = (product.b, described.left, product.a, described.right)
        output = (product.c, described.result, product.c, described.result)
        algorithm = found.ctypes.data + index * found.itemsize
        where = (int(self._workspace.handle), WORKSPACE_BYTES, int(self.gpu.stream.handle))
        operands = (ctypes.addressof(alpha), *inputs, ctypes.addressof(beta), *output)
        arguments = (self._lt, described.operation, *operands, algorithm, *where)

        def run(keep: tuple[Any, ...] = (alpha, beta, found)) -> None:
            lt.matmul(*arguments)

        return run


@dataclass(frozen=True)
class _Described:
    """cuBLASLt's descriptions of one GEMM: the operation and the layouts of its operands."""

    operation: int
    left: int
    right: int
    result: int


def _describe(product: Product) -> _Described:
    source, target, compute, scale, _ = _types(product.dtype)
    m, n, k = product.m, product.n, product.k
    transposed = product.layout == "TN"
    operation = lt.matmul_desc_create(compute, scale)
    flag = ctypes.c_int32(int(transposed))
    attribute = int(lt.MatmulDescAttribute.TRANSA)
    lt.matmul_desc_set_attribute(operation, attribute, ctypes.addressof(flag), 4)
    rows, columns, stride = (k, n, k) if transposed else (n, k, n)
    return _Described(
        operation,
        lt.matrix_layout_create(source, rows, columns, stride),
        lt.matrix_layout_create(source, k, m, k),
        lt.matrix_layout_create(target, n, m, n),
    )
