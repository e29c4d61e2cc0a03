"""Transposition: output[j][i] = input[i][j]. The input is M x N and the output N x M, both row-major."""

from collections.abc import Sequence

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work

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

    def edges(self, params: Params) -> Sequence[Sequence[Size]]:
        """One element, one row, one column, tiles and one row or column more or less, primes, thin both ways.

        The later sizes of a group are in multiples of 8: both matrices have rows of whole 16 bytes.
        """
        return [
            [dict(zip(self.size_fields, size, strict=True)) for size in group]
            for group in _EDGES
        ]

    def harness(self, dtype: str) -> tuple[str, ...]:
        return tuple(
            f"{name}<{C_TYPES[dtype]}>" for name in ("count_wrong", "check_outputs")
        )

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """No arithmetic; each element is read once and written once."""
        return Work(0.0, 2.0 * size["m"] * size["n"] * ELEMENT_BYTES[dtype])

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Input, two outputs, and the copy's target."""
        return 4 * size["m"] * size["n"] * ELEMENT_BYTES[dtype]


PROBLEM = Transpose()
