"""GEMM: C = alpha*A@B + beta*C, row-major. NN: A is M x K, B is K x N. TN: B is stored as N x K."""

from collections.abc import Sequence

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work
from ladder.problems.gemm.bounds import LONGEST_K

_OUTPUT = {"tf32": "fp32", "fp16_acc16": "fp16", "fp8": "bf16"}
_EDGES = (
    ((1, 257, 131), (1, 264, 136), (16, 256, 128)),
    ((257, 1, 67), (257, 8, 72), (128, 16, 64)),
    ((130, 66, 1), (130, 72, 8), (144, 80, 16)),
    ((131, 61, 37), (131, 88, 40), (112, 96, 48)),
    ((257, 129, 65), (257, 136, 72), (272, 144, 80)),
    ((127, 255, 63), (127, 248, 56), (112, 240, 48)),
    ((256, 256, 96), (512, 512, 256)),
    ((129, 130, 2051), (129, 136, 2056), (144, 144, 2064), (256, 256, 2048)),
    ((65, 258, 4099), (65, 264, 4104), (80, 272, 4112), (256, 512, 4096)),
    ((260, 34, 16387), (260, 40, 16392), (272, 48, 16400), (512, 256, 16384)),
    ((1, 67, 8195), (1, 72, 8200), (1, 80, 8208)),
    ((4, 131, 4099), (4, 136, 4104), (4, 144, 4112)),
    ((16, 33, 2053), (16, 40, 2056), (16, 48, 2064)),
    ((16, 33, 65531), (16, 48, 65520), (128, 128, 65536)),
    ((4, 19, 262139), (4, 32, 262128)),
    ((1, 19, 1048571), (1, 32, 1048560)),
)
_COSTLY_K = 65000


def input_dtype(dtype: str) -> str:
    """Element type of A and B."""
    return "fp16" if dtype == "fp16_acc16" else dtype


def output_dtype(dtype: str) -> str:
    """Element type of C."""
    return _OUTPUT.get(dtype, dtype)


class Gemm(Problem):
    """General matrix multiplication."""

    name = "gemm"
    check_version = 1
    size_fields = ("m", "n", "k")
    dtypes = ("fp32", "tf32", "fp16", "fp16_acc16", "bf16", "fp8")
    layouts = ("NN", "TN")
    buffers = ("a", "b", "c")
    scalars = ("alpha", "beta")
    libraries = ("cublas", "cublaslt", "cublaslt_fast")
    place = 1
    # A dimension of 1, K below a stage, odd and prime sizes, tiles and one more or less, whole tiles, long K, few
    # rows of A with a long K, and sums as long as those of weight gradients. The later sizes of a group are in
    # multiples of 8 (rows of whole 16 bytes), of 16, and of common tiles.
    edge_sizes = _EDGES
    packages = ("nvidia-cublas",)  # the reference, and the fp64 answer of the check

    def unsupported(self, size: Size, dtype: str) -> str | None:
        longest = LONGEST_K.get(dtype)
        if longest is None or size["k"] <= longest:
            return None
        why = "their rounding, or a range that positive inputs leave, hides fewer bits"
        return f"no check can judge sums of {dtype} beyond K = {longest}: {why}"

    def is_costly(self, edge: Size) -> bool:
        return edge["k"] >= _COSTLY_K

    def edges(self, params: Params, dtype: str = "") -> Sequence[Sequence[Size]]:
        """Without long sums for types in which honest ones may lose more than is allowed: see bounds.py."""
        short = dtype in ("fp8", "fp16_acc16")
        groups = super().edges(params)
        return [group for group in groups if not (short and self.is_costly(group[0]))]

    def harness(self, dtype: str) -> tuple[str, ...]:
        """The checks' kernels, by the types of input and output."""
        given, made = C_TYPES[input_dtype(dtype)], C_TYPES[output_dtype(dtype)]
        return (
            f"widen<{given}>",
            f"multiply_rows_by_signs<{given}>",
            f"multiply_columns_by_signs<{given}>",
            f"compare_product<{made}>",
            f"count_nan<{made}>",
            f"refresh_product<{given}, {made}>",
            f"check_product<{given}, {made}>",
        )

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """2MNK operations; A and B read once, C written once (beta = 0)."""
        m, n, k = size["m"], size["n"], size["k"]
        read = (m * k + k * n) * ELEMENT_BYTES[dtype]
        return Work(2.0 * m * n * k, read + m * n * ELEMENT_BYTES[output_dtype(dtype)])

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Operands, two results, what C held before, and the check's fp64 copies of A and B with two fp64 results."""
        m, n, k = size["m"], size["n"], size["k"]
        inputs, outputs = m * k + k * n, m * n
        input_bytes = ELEMENT_BYTES[dtype] + 8
        output_bytes = 3 * ELEMENT_BYTES[output_dtype(dtype)] + 16
        return inputs * input_bytes + outputs * output_bytes


PROBLEM = Gemm()
