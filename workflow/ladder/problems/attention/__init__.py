"""Attention, forward: O = softmax(Q K^T / sqrt(d)) V for each head. With `causal` row i sees the keys up to i alone.

q, k, v and o are [heads, sequence, d], contiguous and of one type, but for fp8, where o is in bf16; heads counts those
of all batches. d is a field of the size since buffers depend on it. A kernel is compiled for some: it has a parameter
`depth` with their values, and the constraint `d == depth`.
"""

from collections.abc import Sequence

from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size, Work

DEPTHS = (64, 128, 256)
_OUTPUT = {"fp8": "bf16"}
_EDGES = (  # heads and sequence
    ((67, 1), (67, 128)),
    ((3, 2), (3, 128)),
    ((2, 63), (2, 128)),
    ((1, 64), (1, 128)),
    ((5, 65), (5, 256)),
    ((2, 127), (2, 256)),
    ((1, 128),),
    ((3, 129), (3, 256)),
    ((2, 191), (2, 256)),
    ((1, 257), (1, 384)),
    ((2, 1031), (2, 1024)),
    ((67, 320), (67, 384)),
)


def output_dtype(dtype: str) -> str:
    """Element type of o."""
    return _OUTPUT.get(dtype, dtype)


class Attention(Problem):
    """What each row of Q, a query, makes of V: its rows, weighed by the softmax of the query's products with keys."""

    name = "attention"
    check_version = 1
    place = 7
    size_fields = ("sequence", "heads", "d")
    dtypes = ("bf16", "fp16", "fp8")
    buffers = ("q", "k", "v", "o")
    inputs = ("uniform", "positive", "integers", "wide", "equal", "spikes")
    parameters = {
        "causal": "1 where a row sees the keys up to its own alone, 0 where it sees all"
    }

    def edges(self, params: Params) -> Sequence[Sequence[Size]]:
        """One key, two, tiles of 64 and 128 and one more or less, primes; the last has more tiles than a GPU blocks.

        Of a group the first sizes have the depths that kernels are compiled for. The later ones are whole tiles of 128.
        """
        return [
            [
                {"sequence": sequence, "heads": heads, "d": d}
                for heads, sequence in group
                for d in DEPTHS
            ]
            for group in _EDGES
        ]

    def harness(self, dtype: str) -> tuple[str, ...]:
        types = f"{C_TYPES[dtype]}, {C_TYPES[output_dtype(dtype)]}"
        return tuple(
            f"{name}<{types}, {d}>"
            for name in ("compare_rows", "check_rows")
            for d in DEPTHS
        )

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """As FlashAttention counts: 2 d operations for each pair of query and key, in both products; half if causal.

        Each of the four buffers is read or written once.
        """
        sequence, heads, d = (size[name] for name in self.size_fields)
        operations = 4.0 * sequence**2 * d * heads
        return Work(
            operations / 2 if params["causal"] else operations,
            heads
            * sequence
            * d
            * (3.0 * ELEMENT_BYTES[dtype] + ELEMENT_BYTES[output_dtype(dtype)]),
        )

    def device_bytes(self, size: Size, dtype: str) -> int:
        """q, k and v, and two outputs."""
        sequence, heads, d = (size[name] for name in self.size_fields)
        return (
            heads
            * sequence
            * d
            * (3 * ELEMENT_BYTES[dtype] + 2 * ELEMENT_BYTES[output_dtype(dtype)])
        )


PROBLEM = Attention()
