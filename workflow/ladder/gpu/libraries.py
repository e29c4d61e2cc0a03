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

# More than the 32 MiB that cuBLAS recommends for Hopper, for both alike.
WORKSPACE_BYTES = 64 * 1024 * 1024

_OPERANDS = {
    "fp64": Data.CUDA_R_64F,
    "fp32": Data.CUDA_R_32F,
    "tf32": Data.CUDA_R_32F,
    "fp16": Data.CUDA_R_16F,
    "fp16_acc16": Data.CUDA_R_16F,
    "bf16": Data.CUDA_R_16BF,
    "fp8": Data.CUDA_R_8F_E4M3,
    "fp8_fp32": Data.CUDA_R_8F_E4M3,
}
_RESULTS = {**_OPERANDS, "fp8": Data.CUDA_R_16BF, "fp8_fp32": Data.CUDA_R_32F}
_COMPUTE = {
    "fp64": Compute.COMPUTE_64F,
    "tf32": Compute.COMPUTE_32F_FAST_TF32,
    "fp16_acc16": Compute.COMPUTE_16F,
}
"""Accumulation, by dtype; others: COMPUTE_32F."""
_SCALARS = {
    "fp64": (Data.CUDA_R_64F, np.float64),
    "fp16_acc16": (Data.CUDA_R_16F, np.float16),
}
"""Type of alpha and beta on the device and on the host, by dtype; others: fp32."""

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
    """One GEMM with alpha = 1, beta = 0: pointers a, b, c, sizes m, n, k, dtype and layout (row-major).

    `scales` are pointers to block scales of fp8: of a by 1 x 128, of b by 128 x 128. cuBLASLt has these modes since
    CUDA 12.9, on Hopper alone, not 128 x 128 for both ("Scaling Factors Layouts" of cuBLAS' documentation).
    """

    pointers: tuple[int, int, int]
    size: tuple[int, int, int]
    dtype: str
    layout: str
    scales: tuple[int, int] | None = None


@cache
def _scalars(dtype: str) -> tuple[Any, int, int]:
    """alpha = 1 and beta = 0 on the host, and where each lies: kept, since launches point to them."""
    _, kind = _SCALARS.get(dtype, (None, np.float32))
    both = np.array([1, 0], kind)
    return both, both.ctypes.data, both.ctypes.data + both.itemsize


def _described(algorithm: int, workspace_bytes: int) -> str:
    """The algorithm at an address, as far as cuBLASLt tells: `id 66 tile 20 stages 35` and so on."""
    words, written = [], ctypes.c_size_t()
    for word, name in _CONFIGURATION.items():
        attribute = lt.MatmulAlgoConfigAttribute[name]
        value = np.zeros(1, lt.get_matmul_algo_config_attribute_dtype(attribute))
        place = value.ctypes.data, value.nbytes, ctypes.addressof(written)
        with contextlib.suppress(lt.cuBLASLtError):
            lt.matmul_algo_config_get_attribute(algorithm, attribute, *place)
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
        # Else compute-sanitizer tells of what it reads.
        tile.fill(0, stream=self.gpu.stream)
        pointer = int(tile.handle)
        self.cublas(Gemm((pointer, pointer, pointer), (128, 128, 128), "fp64", "NN"))()
        tile.close(self.gpu.stream)

    def cublas(self, gemm: Gemm) -> Launcher:
        """cuBLAS' own choice of algorithm (cublasGemmEx). Raises LadderError for fp8, which it does not have."""
        if gemm.dtype == "fp8":
            raise LadderError("cublasGemmEx has no fp8; cublaslt has")
        dtype, (a, b, c), (m, n, k) = gemm.dtype, gemm.pointers, gemm.size
        source, target = _OPERANDS[dtype], _RESULTS[dtype]
        _, alpha, beta = _scalars(dtype)
        transposed = gemm.layout == "TN"
        return partial(
            cublas.gemm_ex,
            self._cublas,
            int(transposed),
            0,
            n,
            m,
            k,
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
            _COMPUTE.get(dtype, Compute.COMPUTE_32F),
            -1,
        )

    def cublaslt(self, gemm: Gemm, fast: bool = False) -> dict[str, Launcher]:
        """cuBLASLt by its algorithms' names, in the order of its heuristic list.

        `fast` is fp8 without promotion of partial sums. Raises LadderError where there is none.
        """
        if fast and gemm.dtype != "fp8":
            raise LadderError("fast accumulation is a setting of fp8")
        dtype, (a, b, c), (m, n, k) = gemm.dtype, gemm.pointers, gemm.size
        source = _OPERANDS[dtype]
        rows, columns = (k, n) if gemm.layout == "TN" else (n, k)
        operation = _operation(gemm, fast)
        left = lt.matrix_layout_create(source, rows, columns, rows)
        right = lt.matrix_layout_create(source, k, m, k)
        result = lt.matrix_layout_create(_RESULTS[dtype], n, m, n)
        layouts = left, right, result, result
        algorithms = self._heuristic_list(operation, layouts)
        _, alpha, beta = _scalars(dtype)
        operands = (alpha, b, left, a, right, beta, c, result, c, result)
        stream = int(self.gpu.stream.handle)
        where = (int(self._workspace.handle), WORKSPACE_BYTES, stream)
        handle = self._lt

        # Keeps the list of algorithms, to which launches point.
        def launch(index: int) -> None:
            algorithm = algorithms.ctypes.data + index * algorithms.itemsize
            lt.matmul(handle, operation, *operands, algorithm, *where)

        launchers: dict[str, Launcher] = {}
        for index, entry in enumerate(algorithms):
            if entry["state"] != 0:
                continue
            address = algorithms.ctypes.data + index * algorithms.itemsize
            name = _described(address, int(entry["workspace_size"]))
            # Several algorithms may report the same attributes.
            while name in launchers:
                name += " again"
            launchers[name] = partial(launch, index)
        if not launchers:
            raise LadderError("cuBLASLt's heuristic list is empty for this problem")
        return launchers

    @cached_property
    def _lt(self) -> int:
        return int(lt.create())

    def _heuristic_list(self, operation: int, layouts: tuple[int, ...]) -> Any:
        """The algorithms of the list, as cuBLASLt describes them. Raises LadderError where it refuses."""
        preference = lt.matmul_preference_create()
        size = ctypes.c_uint64(WORKSPACE_BYTES)
        attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        lt.matmul_preference_set_attribute(
            preference, attribute, ctypes.addressof(size), 8
        )
        results = np.zeros(self._candidates, dtype=lt.matmul_heuristic_result_dtype)
        count = ctypes.c_int32(0)
        places = results.ctypes.data, ctypes.addressof(count)
        try:
            lt.matmul_algo_get_heuristic(
                self._lt, operation, *layouts, preference, self._candidates, *places
            )
        except lt.cuBLASLtError as error:
            why = f"cuBLASLt has no algorithm for this problem: {error}"
            raise LadderError(why) from error
        return results[: count.value]


def _operation(gemm: Gemm, fast: bool) -> int:
    """A descriptor of the multiplication for cuBLASLt."""
    scalars, _ = _SCALARS.get(gemm.dtype, (Data.CUDA_R_32F, None))
    compute = _COMPUTE.get(gemm.dtype, Compute.COMPUTE_32F)
    operation = int(lt.matmul_desc_create(compute, scalars))
    attributes = lt.MatmulDescAttribute
    transposed = ctypes.c_int32(gemm.layout == "TN")
    lt.matmul_desc_set_attribute(
        operation, attributes.TRANSA, ctypes.addressof(transposed), 4
    )
    if fast:
        flag = ctypes.c_int8(1)
        lt.matmul_desc_set_attribute(
            operation, attributes.FAST_ACCUM, ctypes.addressof(flag), 1
        )
    if gemm.scales is not None:
        _set_scales(operation, *gemm.scales)
    return operation


def _set_scales(operation: int, of_a: int, of_b: int) -> None:
    """Block scales, of operands that are swapped: cuBLASLt's A is b."""
    attributes, modes = lt.MatmulDescAttribute, lt.MatmulMatrixScale
    for attribute, value in (
        (attributes.A_SCALE_MODE, ctypes.c_int32(modes.BLK128x128_32F)),
        (attributes.B_SCALE_MODE, ctypes.c_int32(modes.VEC128_32F)),
        (attributes.A_SCALE_POINTER, ctypes.c_uint64(of_b)),
        (attributes.B_SCALE_POINTER, ctypes.c_uint64(of_a)),
    ):
        place = ctypes.addressof(value), ctypes.sizeof(value)
        lt.matmul_desc_set_attribute(operation, attribute, *place)
