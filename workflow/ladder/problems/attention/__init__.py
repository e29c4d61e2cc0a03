"""Attention, forward: O = softmax(Q K^T / sqrt(d)) V for each head. With `causal` row i sees the keys up to i alone.

q, k, v and o are [heads, sequence, d], contiguous and of one type, but for fp8, where o is in bf16; heads counts those
of all batches. d is a field of the size since buffers depend on it. A kernel is compiled for some: it has a parameter
`depth` with their values, and the constraint `d == depth`.

A kernel in fp8 may have a parameter `every`: keys whose products its tensor cores sum before the sum is added in fp32,
0 for all. Its results may be off by more than those of others, which promote every 128 (bounds.py).
"""

import itertools
from collections.abc import Sequence

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work

DEPTHS = (64, 128, 256)
PROMOTION = "every"
_OUTPUT = {"fp8": "bf16"}
_EDGES = (  # sequence and heads
    ((1, 67), (128, 67)),
    ((2, 3), (128, 3)),
    ((63, 2), (128, 2)),
    ((64, 1), (128, 1)),
    ((65, 5), (256, 5)),
    ((127, 2), (256, 2)),
    ((128, 1),),
    ((129, 3), (256, 3)),
    ((191, 2), (256, 2)),
    ((257, 1), (384, 1)),
    ((1031, 2), (1024, 2)),
    ((320, 67), (384, 67)),
)


def output_dtype(dtype: str) -> str:
    """Element type of o."""
    return _OUTPUT.get(dtype, dtype)


def _with_depths(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    return [(*size, d) for size in sizes for d in DEPTHS]


class Attention(Problem):
    """What each row of Q, a query, makes of V: its rows, weighed by the softmax of the query's products with keys."""

    name = "attention"
    check_version = 1
    place = 7
    size_fields = ("sequence", "heads", "d")
    dtypes = ("bf16", "fp16", "fp8")
    buffers = ("q", "k", "v", "o")
    inputs = ("uniform", "positive", "integers", "wide", "equal", "spikes")
    # One key, two, tiles of 64 and 128 and one more or less, primes; the last has more tiles than a GPU blocks.
    # Of a group the first sizes have the depths that kernels are compiled for. The later ones are whole tiles of 128.
    edge_sizes = [_with_depths(group) for group in _EDGES]
    parameters = {
        "causal": "1 where a row sees the keys up to its own alone, 0 where it sees all"
    }

    def harness(self, dtype: str) -> tuple[str, ...]:
        types = f"{C_TYPES[dtype]}, {C_TYPES[output_dtype(dtype)]}"
        kernels = itertools.product(("compare_rows", "check_rows"), DEPTHS)
        return tuple(f"{name}<{types}, {d}>" for name, d in kernels)

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """As FlashAttention counts: 2 d operations for each pair of query and key, in both products; half if causal.

        Each of the four buffers is read or written once.
        """
        sequence, heads, d = (size[name] for name in self.size_fields)
        operations = 4.0 * sequence**2 * d * heads
        if params["causal"]:
            operations /= 2
        bytes_each = 3.0 * ELEMENT_BYTES[dtype] + ELEMENT_BYTES[output_dtype(dtype)]
        return Work(operations, heads * sequence * d * bytes_each)

    def device_bytes(self, size: Size, dtype: str) -> int:
        """q, k and v, and two outputs."""
        sequence, heads, d = (size[name] for name in self.size_fields)
        output_bytes = ELEMENT_BYTES[output_dtype(dtype)]
        return heads * sequence * d * (3 * ELEMENT_BYTES[dtype] + 2 * output_bytes)


PROBLEM = Attention()
