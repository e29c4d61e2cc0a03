"""The 32 banks of shared memory: how many wavefronts one warp-wide access takes.

Model: 32 banks, each serving one 4-byte word a cycle; lanes that want the same word share it (broadcast). A 4-byte (or
narrower) access serves all 32 lanes at once; an 8-byte access goes by half-warps and a 16-byte access by quarter-warps,
each phase taking as many wavefronts as the busiest bank has distinct words. Source: CUDA C++ Programming Guide, "Shared
Memory" of compute capability 5.x and up, for 32-bit accesses. Known limit: hardware serves wide accesses that share
words across phases in fewer wavefronts than this says (an H200 reads a uniform 16-byte word in 2, not 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

LANES = 32
BANKS = 32
WORD_BYTES = 4


def phases(width: int) -> int:
    """Phases of one warp access of `width` bytes per lane: 1 up to 4 bytes, 2 for 8, 4 for 16.

    Raises ValueError for another width.
    """
    if width in (1, 2, 4):
        return 1
    if width in (8, 16):
        return width // WORD_BYTES
    raise ValueError(f"an access is 1, 2, 4, 8 or 16 bytes wide, not {width}")


def bank_words(offsets: Sequence[int], width: int) -> dict[int, set[int]]:
    """Bank -> distinct words the lanes of one phase want there."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for offset in offsets:
        if offset % width:
            raise ValueError(f"offset {offset} is not aligned to {width} bytes")
        for word in range(offset // WORD_BYTES, (offset + width - 1) // WORD_BYTES + 1):
            wanted[word % BANKS].add(word)
    return wanted


def wavefronts(offsets: Sequence[int], width: int = 4) -> int:
    """Wavefronts of one access, given the byte offset of each active lane, from lane 0, and the bytes a lane moves."""
    lanes = LANES // phases(width)
    total = 0
    for start in range(0, len(offsets), lanes):
        wanted = bank_words(offsets[start : start + lanes], width)
        total += max(len(words) for words in wanted.values())
    return total


def conflict_degree(offsets: Sequence[int], width: int = 4) -> float:
    """Wavefronts over the least these lanes and this width allow: 1 is conflict-free, n an n-way conflict."""
    served = max(1, -(-len(offsets) * phases(width) // LANES))
    return wavefronts(offsets, width) / served
