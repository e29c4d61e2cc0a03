"""cuBLAS and cuBLASLt as references, through nvmath-python's bindings.

Row-major C = A@B is column-major C^T = B^T A^T: the operands swap and their transposition flags stay.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ladder.errors import LadderError

if TYPE_CHECKING:
    from ladder.device import Gpu

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
    from nvmath import CudaDataType as Data
    from nvmath.bindings.cublas import ComputeType as Compute

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
        import numpy as np

        return ctypes.c_uint16(int(np.float16(value).view(np.uint16)))
    return kind(value)


class Libraries:
    """Handles of cuBLAS and cuBLASLt on one GPU's stream, made when first needed."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._cublas: int | None = None
        self._lt: int | None = None
        self._workspace = gpu.allocate(WORKSPACE_BYTES)
        self._warm_up()

    def _warm_up(self) -> None:
        """Load cuBLAS and its fp64 kernels now, so that no check pays for it."""
        tile = self.gpu.allocate(8 * 128 * 128)
        pointer = int(tile.handle)
        self.cublas(Product(pointer, pointer, pointer, 128, 128, 128, "fp64", "NN"))()
        tile.close(self.gpu.stream)

    def _handle(self) -> int:
        if self._cublas is None:
            from nvmath.bindings import cublas

            self._cublas = cublas.create()
            cublas.set_stream(self._cublas, int(self.gpu.stream.handle))
            # A workspace of our own: the library then allocates nothing while a graph is captured.
            cublas.set_workspace(self._cublas, int(self._workspace.handle), WORKSPACE_BYTES)
        return self._cublas

    def cublas(self, product: Product, lda: int | None = None, ldb: int | None = None) -> Callable[[], None]:
        """cuBLAS' own choice of algorithm (cublasGemmEx). Raises LadderError for fp8, which it lacks."""
        from nvmath.bindings import cublas

        if product.dtype == "fp8":
            raise LadderError("cublasGemmEx has no fp8; cublaslt has")
        handle = self._handle()
        source, target, compute, _, kind = _types(product.dtype)
        alpha, beta = _scalar(kind, product.alpha), _scalar(kind, product.beta)
        m, n, k = product.m, product.n, product.k
        transposed = product.layout == "TN"
        first_ld = ldb or (k if transposed else n)
        arguments = (
            handle,
            int(transposed),
            0,
            n,
            m,
            k,
            ctypes.addressof(alpha),
            product.b,
            source,
            first_ld,
            product.a,
            source,
            lda or k,
            ctypes.addressof(beta),
            product.c,
            target,
            n,
            compute,
            -1,
        )

        def run(keep: tuple[Any, ...] = (alpha, beta)) -> None:
            cublas.gemm_ex(*arguments)

        return run

    def cublaslt(
        self, product: Product, candidates: int, times_of: Callable[[list[Callable[[], None]]], list[float]]
    ) -> Any:
        """The fastest of cuBLASLt's first `candidates` heuristic algorithms by `times_of` them (µs).

        Raises LadderError where the heuristic has none for the problem.
        """
        launchers = self._lt_candidates(product, candidates)
        times = times_of(launchers)
        return launchers[times.index(min(times))]

    def _lt_candidates(self, product: Product, candidates: int) -> list[Callable[[], None]]:
        import numpy as np
        from nvmath.bindings import cublasLt as lt

        if self._lt is None:
            self._lt = lt.create()
        source, target, compute, scale, kind = _types(product.dtype)
        alpha, beta = _scalar(kind, product.alpha), _scalar(kind, product.beta)
        m, n, k = product.m, product.n, product.k
        transposed = product.layout == "TN"
        operation = lt.matmul_desc_create(compute, scale)
        flag = ctypes.c_int32(int(transposed))
        attribute = int(lt.MatmulDescAttribute.TRANSA)
        lt.matmul_desc_set_attribute(operation, attribute, ctypes.addressof(flag), 4)
        left = (
            lt.matrix_layout_create(source, k, n, k)
            if transposed
            else lt.matrix_layout_create(source, n, k, n)
        )
        right = lt.matrix_layout_create(source, k, m, k)
        result = lt.matrix_layout_create(target, n, m, n)
        preference = lt.matmul_preference_create()
        size = ctypes.c_uint64(WORKSPACE_BYTES)
        lt.matmul_preference_set_attribute(
            preference, int(lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES), ctypes.addressof(size), 8
        )
        found = np.zeros(candidates, dtype=lt.matmul_heuristic_result_dtype)
        count = ctypes.c_int32(0)
        try:
            lt.matmul_algo_get_heuristic(
                self._lt,
                operation,
                left,
                right,
                result,
                result,
                preference,
                candidates,
                found.ctypes.data,
                ctypes.addressof(count),
            )
        except lt.cuBLASLtError as error:
            raise LadderError(f"cuBLASLt has no algorithm for this problem: {error}") from error
        usable = [index for index in range(count.value) if found["state"][index] == 0]
        if not usable:
            raise LadderError("cuBLASLt's heuristic list is empty for this problem")

        def launcher(index: int) -> Callable[[], None]:
            algorithm = found.ctypes.data + index * found.itemsize
            handle, workspace = self._lt, int(self._workspace.handle)
            stream = int(self.gpu.stream.handle)

            def run(keep: tuple[Any, ...] = (alpha, beta, found)) -> None:
                lt.matmul(
                    handle,
                    operation,
                    ctypes.addressof(alpha),
                    product.b,
                    left,
                    product.a,
                    right,
                    ctypes.addressof(beta),
                    product.c,
                    result,
                    product.c,
                    result,
                    algorithm,
                    workspace,
                    WORKSPACE_BYTES,
                    stream,
                )

            return run

        return [launcher(index) for index in usable]
