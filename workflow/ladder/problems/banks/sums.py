"""What the lanes of a bank probe must have read, from the byte offsets it reports."""

from collections.abc import Sequence

from ladder.build.banks import DEFAULT_MERGE, LANES, MATRIX_ROWS, matrix_wavefronts, wavefronts
from ladder.model.problem import Params

HASH = 2654435761
"""Word w of shared memory holds w * HASH (mod 2**32)."""


def words_read(offsets: Sequence[int], lane: int, params: Params) -> list[int]:
    """Words `lane` receives in one access.

    A lane reads, or writes and reads back, `width` bytes (default 4) from its offset on. With a parameter `matrices`
    the access is ldmatrix: lanes 8m to 8m + 7 give the rows of matrix m, and lane l receives word l % 4 of its row
    l / 4 (PTX ISA, ldmatrix).
    """
    if "matrices" in params:
        rows = (offsets[MATRIX_ROWS * matrix + lane // 4] for matrix in range(int(params["matrices"])))
        return [row // 4 + lane % 4 for row in rows]
    return [offsets[lane] // 4 + part for part in range(int(params.get("width", 4)) // 4)]


def expected_sums(patterns: Sequence[Sequence[int]], accesses: int, params: Params) -> list[int]:
    """Sum (mod 2**32) each lane reads in `accesses` accesses that cycle through the patterns' offsets."""
    rounds = accesses // len(patterns)
    return [
        rounds * sum(word * HASH for row in patterns for word in words_read(row, lane, params)) % 2**32
        for lane in range(LANES)
    ]


def predicted_wavefronts(offsets: Sequence[int], params: Params) -> int:
    """Wavefronts the bank model expects of one access of the kernel with these parameters."""
    if "matrices" in params:
        return matrix_wavefronts(offsets[: MATRIX_ROWS * int(params["matrices"])])
    # Only reads merge: an H200 stores 8 or 16 bytes a lane in 2 or 4 wavefronts, whatever the lanes share.
    merge = "none" if params.get("access") == "write" else DEFAULT_MERGE
    return wavefronts(offsets, int(params.get("width", 4)), merge)
