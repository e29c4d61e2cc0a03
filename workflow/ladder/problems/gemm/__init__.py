"""GEMM: C = alpha*A@B + beta*C, row-major. NN: A is M x K, B is K x N. TN: B is stored as N x K."""

from __future__ import annotations

from ladder.model.problem import C_TYPES, Params, Problem, Size, Work

OUTPUT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "fp16_acc16": 2, "bf16": 2, "fp8": 2}

_OUTPUTS = ("fp32", "fp16", "bf16")


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
    place = 1
    packages = ("nvidia-cublas",)  # the reference, and the fp64 product of the check
    harness = (
        *(f"widen<{c_type}>" for dtype, c_type in C_TYPES.items() if dtype != "int32"),
        *(f"{name}<{C_TYPES[dtype]}>" for name in ("compare_product", "count_nan") for dtype in _OUTPUTS),
    )

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """2MNK operations; A and B read once, C written once (beta = 0)."""
        m, n, k = size["m"], size["n"], size["k"]
        read = (m * k + k * n) * self.element_bytes(dtype)
        return Work(2.0 * m * n * k, read + m * n * OUTPUT_BYTES[dtype])

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Operands, result, and the check's fp64 copies of A and B with two fp64 products."""
        m, n, k = size["m"], size["n"], size["k"]
        operands = (m * k + k * n) * self.element_bytes(dtype) + 2 * m * n * OUTPUT_BYTES[dtype]
        return operands + 8 * (m * k + k * n) + 16 * m * n


PROBLEM = Gemm()
