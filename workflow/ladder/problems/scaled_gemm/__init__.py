"""GEMM in fp8 with block scales: C = the sum over blocks of 128 of K of their products, times two scales.

A is M x K and B, stored as N x K, is in e4m3. Of block b of K, element (m, n) of the product is multiplied by
scale_a[b][m] * scale_b[n / 128][b], in fp32, and the sum over blocks is C, in bf16 or fp32. These are the scales of
DeepSeek-V3 (3.3.2) and DeepGEMM: A has one for 1 x 128, B one for 128 x 128. scale_a has rows of M, rounded up to a
multiple of 4, and scale_b rows of so many blocks of K, as cuBLASLt and TMA want.

With `scaled` 0 the answer is the product without scales: what they cost.
"""

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work
from ladder.problems.scaled_gemm.bounds import BLOCK, LONGEST_K, blocks_of

_OUTPUT = {"fp8": "bf16", "fp8_fp32": "fp32"}
_VECTOR = 16  # elements of K that lie together
_EDGES = (
    ((1, 257, 144), (1, 264, 144)),
    ((257, 1, 128), (257, 16, 128)),
    ((130, 66, 16), (130, 72, 16)),
    ((131, 61, 112), (131, 88, 112)),
    ((129, 127, 272), (129, 136, 272)),
    ((256, 256, 384), (512, 512, 384)),
    ((127, 255, 640), (127, 248, 640)),
    ((257, 385, 1040), (257, 392, 1040), (256, 384, 1024)),
    ((65, 258, 4112), (65, 264, 4112), (64, 256, 4096)),
    ((4, 131, 16400), (4, 136, 16400)),
    ((3, 19, LONGEST_K), (3, 24, LONGEST_K)),
)


def output_dtype(dtype: str) -> str:
    """Element type of C."""
    return _OUTPUT[dtype]


def scale_shapes(size: Size) -> dict[str, tuple[int, int]]:
    """Of both scales, by buffer: rows, and elements in each."""
    blocks = blocks_of(size["k"])
    return {
        "scale_a": (blocks, _in_fours(size["m"])),
        "scale_b": (-(-size["n"] // BLOCK), _in_fours(blocks)),
    }


def _in_fours(count: int) -> int:
    return -(-count // 4) * 4


class ScaledGemm(Problem):
    """Matrix multiplication whose operands have scales by blocks."""

    name = "scaled_gemm"
    check_version = 1
    place = 1
    size_fields = ("m", "n", "k")
    dtypes = ("fp8", "fp8_fp32")
    layouts = ("TN",)
    buffers = ("a", "b", "scale_a", "scale_b", "c")
    libraries = ("cublaslt_block",)
    parameters = {"scaled": "1 where the answer has the scales, 0 where it has none"}
    # One row or column, K below a block, of whole blocks and not, one block more or less than tiles have, odd and prime
    # sizes, few rows of A with a long K. The later sizes of a group are in multiples of 8, and of common tiles.
    edge_sizes = _EDGES
    packages = ("nvidia-cublas",)

    def unsupported(self, size: Size, dtype: str) -> str | None:
        if size["k"] % _VECTOR:
            return (
                f"K is no multiple of {_VECTOR}: rows of A and B are no whole 16 bytes"
            )
        if size["k"] > LONGEST_K:
            return f"beyond K = {LONGEST_K} right elements may be off by half of what they are"
        return None

    def is_costly(self, edge: Size) -> bool:
        return edge["k"] >= LONGEST_K

    def harness(self, dtype: str) -> tuple[str, ...]:
        made = C_TYPES[output_dtype(dtype)]
        checks = (f"compare_scaled<{made}>", f"check_scaled<{made}>")
        return ("draw_scales", "multiply_columns_by_signs", *checks)

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """2MNK operations; A, B and their scales read once, C written once."""
        m, n, k = size["m"], size["n"], size["k"]
        written = m * n * ELEMENT_BYTES[output_dtype(dtype)]
        scales = blocks_of(k) * (m + -(-n // BLOCK)) if params["scaled"] else 0
        read = (m + n) * k * ELEMENT_BYTES[dtype] + scales * ELEMENT_BYTES["fp32"]
        return Work(2.0 * m * n * k, read + written)

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Operands and their scales, two results, and of the check B times signs and its squares."""
        m, n, k = size["m"], size["n"], size["k"]
        scales = sum(rows * width for rows, width in scale_shapes(size).values())
        singles = scales + k + _in_fours(blocks_of(k))
        return (
            (m + n) * k * ELEMENT_BYTES[dtype]
            + singles * ELEMENT_BYTES["fp32"]
            + 2 * m * n * ELEMENT_BYTES[output_dtype(dtype)]
        )


PROBLEM = ScaledGemm()
