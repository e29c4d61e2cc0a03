"""The 32 banks of shared memory: how many wavefronts one warp-wide access takes, be it a read or a write.

Model: 32 banks, each serving one 4-byte word a cycle; lanes that want the same word share it (broadcast, or for writes
one of them wins). A 4-byte (or narrower) access serves all 32 lanes at once (CUDA C++ Programming Guide, "Shared
Memory" of compute capability 5.x and up). An 8-byte access goes by half-warps and a 16-byte access by quarter-warps. Of
a read, two halves, or the two quarters of one half, are joined into one group where every lane shares its vector with
lane ^ 1, or every lane with lane ^ 2 (both active): a uniform read of 16 bytes takes 2 wavefronts, of 8 bytes 1, as
counted on an H200 (sweep bank_wide_shared). A group takes as many wavefronts as the busiest bank has distinct words.
ldmatrix goes by its phases of eight row addresses, which never merge.
"""

from collections.abc import Sequence

LANES = 32
BANKS = 32
WORD_BYTES = 4
MATRIX_ROWS = 8
ROW_BYTES = 16

Wanted = dict[int, dict[int, list[int]]]
"""Bank -> word -> the lanes that want it."""


def phases(width: int) -> int:
    """Phases of an access of `width` bytes a lane where nothing merges: 1, or 2 of 8 and 4 of 16. Raises ValueError."""
    if width not in (1, 2, 4, 8, 16):
        raise ValueError(f"an access is 1, 2, 4, 8 or 16 bytes wide, not {width}")
    return max(1, width // WORD_BYTES)


def _wanted(offsets: Sequence[int], lanes: range, width: int) -> Wanted:
    """What `lanes` want in one phase. Raises ValueError for a misaligned offset."""
    wanted: Wanted = {}
    for lane in lanes:
        first = offsets[lane]
        if first % width:
            raise ValueError(f"offset {first} is not aligned to {width} bytes")
        for word in range(first // WORD_BYTES, (first + width - 1) // WORD_BYTES + 1):
            wanted.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    return wanted


def _turns(offsets: Sequence[int], width: int) -> int:
    """Wavefronts of lanes served as one group: distinct words in the busiest bank."""
    return max((len(words) for words in _wanted(offsets, range(len(offsets)), width).values()), default=0)


def _in_pairs(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two neighbouring phases, given by the offsets of their lanes, are served as one."""
    both = [*first, *second]
    shared = [
        [both[at] == both[at ^ bit] for at in range(len(both)) if at ^ bit < len(both)] for bit in (1, 2)
    ]
    return any(all(lanes) for lanes in shared)


def groups(offsets: Sequence[int], width: int = 4, merges: bool = True) -> list[range]:
    """Lanes that are served together, in order; lanes beyond the offsets ask for nothing."""
    lanes, active = LANES // phases(width), range(min(len(offsets), LANES))
    parts = [active[start : start + lanes] for start in active[::lanes]]
    joined: list[range] = []
    # Only the phases 2i and 2i + 1 merge: the halves of a warp, or the quarters of one half.
    for pair in (parts[start : start + 2] for start in range(0, len(parts), 2)):
        first, last = pair[0], pair[-1]
        halves = offsets[first.start : first.stop], offsets[last.start : last.stop]
        together = len(pair) == 2 and merges and _in_pairs(*halves)
        joined += [range(first.start, last.stop)] if together else pair
    return joined


def wavefronts(offsets: Sequence[int], width: int = 4, merges: bool = True) -> int:
    """Wavefronts of one access, given the byte offset of each active lane, from lane 0, and the bytes a lane moves.

    Raises ValueError for a width no lane can move and for a misaligned offset.
    """
    return sum(_turns(offsets[lanes.start : lanes.stop], width) for lanes in groups(offsets, width, merges))


def matrix_wavefronts(rows: Sequence[int]) -> int:
    """Wavefronts of one ldmatrix, given the byte offset of each 16-byte row: eight per matrix, from lane 0 on.

    Raises ValueError where the rows are not those of 1, 2 or 4 matrices, or a row is misaligned.
    """
    if len(rows) not in (MATRIX_ROWS, 2 * MATRIX_ROWS, 4 * MATRIX_ROWS):
        raise ValueError(f"ldmatrix takes 8, 16 or 32 row addresses, not {len(rows)}")
    return wavefronts(rows, ROW_BYTES, merges=False)


def conflict_degree(offsets: Sequence[int], width: int = 4, merges: bool = True) -> float:
    """Wavefronts over the groups of lanes served together: 1 is conflict-free, n an n-way conflict on average."""
    return wavefronts(offsets, width, merges) / max(1, len(groups(offsets, width, merges)))


def served(offsets: Sequence[int], width: int = 4, merges: bool = True) -> list[Wanted]:
    """What each group of lanes wants."""
    return [_wanted(offsets, lanes, width) for lanes in groups(offsets, width, merges)]
