"""Transposition: output[j][i] = input[i][j]. The input is M x N and the output N x M, both row-major."""

from ladder.model.problem import ELEMENT_BYTES, Params, Problem, Size, Work

_EDGES = (
    ((1, 1), (8, 8)),
    ((1, 1031), (8, 1032)),
    ((1031, 1), (1032, 8)),
    ((31, 33), (24, 40)),
    ((33, 31), (40, 24)),
    ((64, 64),),
    ((127, 131), (120, 136)),
    ((257, 61), (264, 56)),
    ((3, 65537), (8, 65544)),
    ((65537, 3), (65544, 8)),
    ((1021, 2053), (1032, 2056)),
)


class Transpose(Problem):
    """A matrix transposed out of place."""

    name = "transpose"
    check_version = 1
    place = 5
    size_fields = ("m", "n")
    dtypes = ("fp32", "bf16")
    buffers = ("input", "output")
    libraries = ("copy", "geam")
    packages = ("nvidia-cublas",)  # geam is of cuBLAS
    # One element, one row, one column, tiles and one row or column more or less, primes, thin both ways.
    # The later size of a group is in multiples of 8: both matrices have rows of whole 16 bytes.
    edge_sizes = _EDGES
    check_kernels = ("count_wrong", "check_outputs")

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """No arithmetic; each element is read once and written once."""
        return Work(0.0, 2.0 * size["m"] * size["n"] * ELEMENT_BYTES[dtype])

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Input, two outputs, and the copy's target."""
        return 4 * size["m"] * size["n"] * ELEMENT_BYTES[dtype]


PROBLEM = Transpose()
