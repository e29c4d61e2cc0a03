"""The interval of the median: what it promises, held against exact binomial sums."""

from __future__ import annotations

from math import comb

import pytest
from ladder.model.intervals import interval_ranks, median, median_interval


def coverage(count: int, low: int) -> float:
    """Exact chance that ranks low … count-1-low bracket the median: low+1 … count-1-low samples lie below it."""
    outside = 2 * sum(comb(count, below) for below in range(low + 1))
    return float(1 - outside / 2**count) if outside < 2**count else 0.0


@pytest.mark.parametrize("count", [*range(6, 61), 997, 998, 1000, 1333, 3001])
def test_ranks_cover_the_median_with_95_percent_and_no_closer_ranks_do(
    count: int,
) -> None:
    low, high = interval_ranks(count)
    assert high == count - 1 - low, "the ranks are symmetric"
    assert coverage(count, low) >= 0.95 > coverage(count, low + 1)


@pytest.mark.parametrize("count", range(1, 6))
def test_too_few_samples_give_their_extremes(count: int) -> None:
    assert interval_ranks(count) == (0, count - 1)


def test_the_interval_is_made_of_samples_and_holds_their_median_in_any_order() -> None:
    values = [9.0, 1.0, 7.0, 3.0, 8.0, 2.0, 6.0, 4.0, 5.0, 10.0]
    assert median_interval(values) == (2.0, 9.0)
    assert median_interval(sorted(values)) == (2.0, 9.0)
    assert median(values) == 5.5


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])
