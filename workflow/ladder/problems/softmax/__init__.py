"""Softmax along M rows of N columns: output[r][c] = exp(input[r][c] - top) / sum over the row of exp(input - top).

top is the row's maximum. Input and output have the same type. A row of nothing but -inf has no softmax: what it gives
is not looked at.
"""

from ladder.model.problem import ELEMENT_BYTES, INPUTS, Params, Problem, Size, Work

_EDGES = (
    ((1, 1), (1, 8)),
    ((5, 2), (5, 8)),
    ((131, 33), (131, 40)),
    ((33, 257), (33, 264)),
    ((65537, 3), (65537, 8)),
    ((9, 1021), (9, 1016)),
    ((9, 1024),),
    ((9, 1031), (9, 1032)),
    ((3, 8191), (3, 8184)),
    ((3, 8209), (3, 8200)),
    ((3, 16381), (3, 16376)),
    ((2, 65535), (2, 65528)),
    ((2, 65537), (2, 65544)),
    ((2, 262143), (2, 262136)),
    ((2, 262147), (2, 262152)),
)


class Softmax(Problem):
    """Each row of a matrix as the shares of its exponentials."""

    name = "softmax"
    check_version = 1
    place = 6
    size_fields = ("m", "n")
    dtypes = ("fp32", "bf16")
    buffers = ("input", "output")
    libraries = ("copy",)
    inputs = INPUTS
    # One element, short rows, many rows, and columns around those of the sweeps: a few more, a few less, primes.
    # The later size of a group is in multiples of 8: rows of whole 16 bytes.
    edge_sizes = _EDGES
    check_kernels = ("compare_rows", "check_rows")

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """A comparison, a difference, an exponential, an addition and a product for each element.

        Each is read once and written once.
        """
        elements = size["m"] * size["n"]
        return Work(5.0 * elements, 2.0 * elements * ELEMENT_BYTES[dtype])

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Input, two outputs, and the copy's target."""
        return 4 * size["m"] * size["n"] * ELEMENT_BYTES[dtype]


PROBLEM = Softmax()
