"""GEMM: C = alpha*A@B + beta*C, row-major. NN: A is M x K, B is K x N. TN: B is stored as N x K."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ladder.problems.base import Instance, Params, Problem, Work

if TYPE_CHECKING:
    from ladder.device import Gpu

OUTPUT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "fp16_acc16": 2, "bf16": 2, "fp8": 2}


class Gemm(Problem):
    """Matrix product."""

    name = "gemm"
    size_fields = ("m", "n", "k")
    dtypes = ("fp32", "tf32", "fp16", "fp16_acc16", "bf16", "fp8")
    layouts = ("NN", "TN")
    buffers = ("a", "b", "c")
    scalars = ("alpha", "beta")
    libraries = ("cublas", "cublaslt")
    has_beta = True

    def work(self, size: Mapping[str, int], dtype: str, params: Params) -> Work:
        """2MNK operations; A and B read once, C written once (beta = 0)."""
        m, n, k = size["m"], size["n"], size["k"]
        read = (m * k + k * n) * self.element_bytes(dtype)
        return Work(2.0 * m * n * k, read + m * n * OUTPUT_BYTES[dtype])

    def device_bytes(self, size: Mapping[str, int], dtype: str) -> int:
        """Operands, result, and the check's fp64 copies of A and B with two fp64 products."""
        m, n, k = size["m"], size["n"], size["k"]
        operands = (m * k + k * n) * self.element_bytes(dtype) + 2 * m * n * OUTPUT_BYTES[dtype]
        return operands + 8 * (m * k + k * n) + 16 * m * n

    def instance(self, gpu: Gpu, size: Mapping[str, int], dtype: str, layout: str, seed: int) -> Instance:
        """Inputs, references and check on a device."""
        from ladder.problems.gemm_instance import GemmInstance

        return GemmInstance.create(gpu, size, dtype, layout, seed)
