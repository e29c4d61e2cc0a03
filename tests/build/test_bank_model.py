"""The bank model: accesses counted by hand, and what must hold for every access."""

from __future__ import annotations

from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ladder.build.banks import (
    groups,
    least_cycles,
    matrix_wavefronts,
    served,
    wavefronts,
)

LANES = range(32)
WIDTHS = (1, 2, 4, 8, 16)


def strided(words: int, width: int = 4) -> list[int]:
    """Byte offsets of 32 lanes that lie `words` 4-byte words apart."""
    return [lane * words * 4 // width * width for lane in LANES]


@pytest.mark.parametrize("stride", range(1, 65))
def test_the_wavefronts_of_a_stride_are_its_common_divisor_with_32(stride: int) -> None:
    assert wavefronts(strided(stride)) == gcd(stride, 32)


@given(
    st.sampled_from(WIDTHS),
    st.lists(st.integers(0, 255), min_size=32, max_size=32),
    st.booleans(),
)
def test_no_access_takes_less_than_its_busiest_bank(
    width: int, places: list[int], merges: bool
) -> None:
    offsets = [place * width for place in places]
    assert least_cycles(offsets, width) <= wavefronts(offsets, width, merges)


def test_a_bank_serves_distinct_words_in_turn_and_counts_them_once() -> None:
    offsets = [0, 128, 256, 0, 128, 256, 4, 4]
    (wanted,) = served(offsets)
    assert {bank: set(words) for bank, words in wanted.items()} == {
        0: {0, 32, 64},
        1: {1},
    }
    assert wavefronts(offsets) == 3


@pytest.mark.parametrize(
    ("width", "lanes", "expected"),
    [(8, 16, 1), (8, 17, 2), (8, 32, 2), (16, 8, 1), (16, 12, 2), (16, 32, 4)],
)
def test_a_wide_access_takes_one_wavefront_per_half_or_quarter_warp(
    width: int, lanes: int, expected: int
) -> None:
    """Phases go by lane number, also where lanes are missing: of those that want nothing there is none."""
    assert wavefronts([width * lane for lane in range(lanes)], width) == expected


@pytest.mark.parametrize(
    ("offset", "width"), [(2, 4), (1, 2), (4, 8), (8, 16), (12, 8)]
)
def test_a_misaligned_offset_is_refused(offset: int, width: int) -> None:
    with pytest.raises(
        ValueError, match=f"offset {offset} is not aligned to {width} bytes"
    ):
        wavefronts([0] * 31 + [offset], width)


@given(st.sampled_from(WIDTHS), st.integers(0, 255), st.booleans())
def test_a_broadcast_is_free_at_every_width(
    width: int, place: int, merges: bool
) -> None:
    same = [width * place] * 32
    assert wavefronts(same, width, merges) == len(groups(same, width, merges))


# Merging of wide accesses, counted by hand: (offsets, width) -> wavefronts of a write, of a read.


@pytest.mark.parametrize(
    ("offsets", "width", "expected"),
    [
        pytest.param([0] * 32, 8, (2, 1), id="uniform 8"),
        pytest.param(
            [8 * (lane // 2) for lane in LANES], 8, (2, 1), id="neighbours share 8"
        ),
        pytest.param(
            [16 * (lane % 2 + lane // 4 * 2) for lane in LANES],
            16,
            (4, 2),
            id="lane ^ 2 shares",
        ),
        # Lanes 4 apart share: half of the words, but no pair of lanes.
        pytest.param(
            [16 * (lane % 4 + lane // 8 * 4) for lane in LANES],
            16,
            (4, 4),
            id="lane ^ 4 shares",
        ),
        # Neighbours share words 32 apart: 16 vectors in one pair of banks.
        pytest.param(
            [128 * (lane // 2) for lane in LANES],
            8,
            (16, 16),
            id="neighbours share, conflicts",
        ),
    ],
)
def test_merging_counted_by_hand(
    offsets: list[int], width: int, expected: tuple[int, int]
) -> None:
    assert (
        tuple(wavefronts(offsets, width, merges) for merges in (False, True))
        == expected
    )


def test_merging_goes_by_halves_of_a_warp() -> None:
    """Only the first half shares: its quarters merge, those of the second half do not."""
    offsets = [16 * (lane // 2) for lane in range(16)] + [
        16 * lane for lane in range(16, 32)
    ]
    assert groups(offsets, 16) == [range(16), range(16, 24), range(24, 32)]
    assert wavefronts(offsets, 16) == 3


def test_ldmatrix_counts_each_phase_of_eight_rows() -> None:
    column = [128 * row for row in range(32)]
    assert [matrix_wavefronts(column[:rows]) for rows in (8, 16, 32)] == [8, 16, 32]
    assert matrix_wavefronts([144 * row for row in range(32)]) == 4
    assert matrix_wavefronts([128 * row + 16 * (row % 8) for row in range(32)]) == 4
    # The phases never merge, although all of them want one row.
    assert matrix_wavefronts([0] * 32) == 4
    with pytest.raises(ValueError, match="8, 16 or 32 row addresses, not 9"):
        matrix_wavefronts([0] * 9)
