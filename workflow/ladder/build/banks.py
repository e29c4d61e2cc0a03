"""The 32 banks of shared memory: how many wavefronts one warp-wide read or write takes.

Model: each bank serves one 4-byte word a cycle; lanes that want the same word share it (broadcast; of writes one wins).
An access of up to 4 bytes serves all 32 lanes at once (CUDA C++ Programming Guide, "Shared Memory" of compute
capability 5.x and up). One of 8 bytes goes by half-warps, one of 16 bytes by quarter-warps. Of a read, two halves, or
the two quarters of one half, join where every lane shares its vector with lane ^ 1, or every lane with lane ^ 2 (both
active): a uniform read of 16 bytes takes 2 wavefronts, of 8 bytes 1, as counted on an H200 (sweep bank_wide_shared). A
group takes as many wavefronts as the busiest bank has distinct words. ldmatrix goes by its phases of eight row
addresses, which never merge.
"""

from collections.abc import Sequence

LANES = 32
BANKS = 32
WORD_BYTES = 4
MATRIX_ROWS = 8
ROW_BYTES = 16

Wanted = dict[int, dict[int, list[int]]]  # bank -> word -> the lanes that want it


def _wanted(offsets: Sequence[int], lanes: range, width: int) -> Wanted:
    """The words that `lanes` access in one phase. Raises ValueError for a misaligned offset."""
    wanted: Wanted = {}
    for lane in lanes:
        first = offsets[lane]
        if first % width:
            raise ValueError(f"offset {first} is not aligned to {width} bytes")
        for word in range(first // WORD_BYTES, (first + width - 1) // WORD_BYTES + 1):
            wanted.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    return wanted


def _in_pairs(offsets: Sequence[int]) -> bool:
    """Whether two neighbouring phases, given by the offsets of their lanes, are served as one."""
    lanes = range(len(offsets))
    return any(
        all(offsets[at] == offsets[at ^ bit] for at in lanes if at ^ bit in lanes)
        for bit in (1, 2)
    )


def groups(offsets: Sequence[int], width: int = 4, merges: bool = True) -> list[range]:
    """Lanes that are served together, in order. Raises ValueError for a width that no lane can move."""
    if width not in (1, 2, 4, 8, 16):
        raise ValueError(f"an access is 1, 2, 4, 8 or 16 bytes wide, not {width}")
    # Where nothing merges there is one phase, 2 of 8 bytes a lane, and 4 of 16.
    lanes = LANES // max(1, width // WORD_BYTES)
    active, joined = range(LANES)[: len(offsets)], list[range]()
    # Only the phases 2i and 2i + 1 merge: the halves of a warp, or the quarters of one half.
    for start in active[:: 2 * lanes]:
        pair = active[start : start + 2 * lanes]
        together = merges and _in_pairs(offsets[pair.start : pair.stop])
        if together or len(pair) <= lanes:
            joined.append(pair)
        else:
            joined += [pair[:lanes], pair[lanes:]]
    return joined


def served(offsets: Sequence[int], width: int = 4, merges: bool = True) -> list[Wanted]:
    """The words that each group of lanes accesses. Raises ValueError for a wrong width and for a misaligned offset."""
    return [_wanted(offsets, lanes, width) for lanes in groups(offsets, width, merges)]


def wavefronts(offsets: Sequence[int], width: int = 4, merges: bool = True) -> int:
    """Wavefronts of one access, from the byte offsets of its lanes and the bytes a lane moves. Raises ValueError."""
    return sum(
        max(map(len, wanted.values())) for wanted in served(offsets, width, merges)
    )


def least_cycles(offsets: Sequence[int], width: int = 4) -> int:
    """Cycles of one access at least, however lanes are grouped: a bank has one word a cycle. Raises ValueError."""
    return max(map(len, _wanted(offsets, range(len(offsets)), width).values()))


def matrix_wavefronts(rows: Sequence[int]) -> int:
    """Wavefronts of one ldmatrix, from the byte offsets of the rows of 1, 2 or 4 matrices. Raises ValueError."""
    if len(rows) not in (MATRIX_ROWS, 2 * MATRIX_ROWS, 4 * MATRIX_ROWS):
        raise ValueError(f"ldmatrix takes 8, 16 or 32 row addresses, not {len(rows)}")
    return wavefronts(rows, ROW_BYTES, merges=False)
