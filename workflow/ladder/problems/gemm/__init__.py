"""GEMM: C = alpha*A@B + beta*C, row-major. NN: A is M x K, B is K x N. TN: B is stored as N x K."""

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work

_OUTPUT = {"tf32": "fp32", "fp16_acc16": "fp16", "fp8": "bf16"}
_INPUT_TYPES = [c_type for dtype, c_type in C_TYPES.items() if dtype != "int32"]
_OUTPUT_TYPES = [C_TYPES[dtype] for dtype in ("fp32", "fp16", "bf16")]
_KERNELS = {"widen": _INPUT_TYPES, "compare_product": _OUTPUT_TYPES, "count_nan": _OUTPUT_TYPES}


def output_dtype(dtype: str) -> str:
    """Element type of C."""
    return _OUTPUT.get(dtype, dtype)


class Gemm(Problem):
    """General matrix multiplication."""

    name = "gemm"
    size_fields = ("m", "n", "k")
    dtypes = ("fp32", "tf32", "fp16", "fp16_acc16", "bf16", "fp8")
    layouts = ("NN", "TN")
    buffers = ("a", "b", "c")
    scalars = ("alpha", "beta")
    libraries = ("cublas", "cublaslt")
    place = 1
    packages = ("nvidia-cublas",)  # the reference, and the fp64 answer of the check
    harness = tuple(f"{kernel}<{c_type}>" for kernel, types in _KERNELS.items() for c_type in types)

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """2MNK operations; A and B read once, C written once (beta = 0)."""
        m, n, k = size["m"], size["n"], size["k"]
        read = (m * k + k * n) * ELEMENT_BYTES[dtype]
        return Work(2.0 * m * n * k, read + m * n * ELEMENT_BYTES[output_dtype(dtype)])

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Operands, result, and the check's fp64 copies of A and B with two fp64 results."""
        inputs, outputs = size["m"] * size["k"] + size["k"] * size["n"], size["m"] * size["n"]
        own = inputs * ELEMENT_BYTES[dtype] + 2 * outputs * ELEMENT_BYTES[output_dtype(dtype)]
        return own + 8 * inputs + 16 * outputs


PROBLEM = Gemm()
