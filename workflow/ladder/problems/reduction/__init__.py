"""Reduction: output[0] = the sum of the `elements` numbers of input, in any order. It holds anything before.

The output is fp32 whatever the input is: rounded to bf16 it would be wrong by up to 2**-8 of itself, behind which any
mistake of less could hide.
"""

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work

_EDGES = (1, 2, 31, 33, 255, 257, 1024, 1031, 4099, 65537, 2**23 + 5)


class Reduction(Problem):
    """The sum of a line of numbers."""

    name = "reduction"
    check_version = 1
    place = 4
    size_fields = ("elements",)
    dtypes = ("fp32", "bf16")
    buffers = ("input", "output")
    libraries = ("copy",)
    # One number and two, a warp and a block and one more or less, primes, several rounds of a whole grid.
    edge_sizes = [[(count,)] for count in _EDGES]

    def harness(self, dtype: str) -> tuple[str, ...]:
        return f"add_drawn<{C_TYPES[dtype]}>", "compare_sum<float>", "check_sum<float>"

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """One addition fewer than there are numbers; each is read once, and one is written."""
        count = size["elements"]
        return Work(count - 1.0, float(count * ELEMENT_BYTES[dtype] + 4))

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Input, the copy's target, which is half of it, and two outputs."""
        count = size["elements"]
        return (count + (count + 1) // 2) * ELEMENT_BYTES[dtype] + 2 * 4


PROBLEM = Reduction()
