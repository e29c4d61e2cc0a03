"""The interval of the median: what it promises, held against exact binomial sums and simulated samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from ladder.model.intervals import interval_ranks, median, median_interval

SAMPLE = 25
TRIALS = 1500
LEAST_COVERED = 0.95 - 3 * (0.95 * 0.05 / TRIALS) ** 0.5


def coverage(count: int, low: int) -> float:
    """Exact chance that ranks low … count-1-low bracket the median: low+1 … count-1-low samples lie below it."""
    outside = 2 * sum(comb(count, below) for below in range(low + 1))
    return float(1 - outside / 2**count) if outside < 2**count else 0.0


@pytest.mark.parametrize("count", range(6, 61))
def test_ranks_cover_the_median_with_95_percent_and_no_closer_ranks_do(
    count: int,
) -> None:
    low, high = interval_ranks(count)
    assert high == count - 1 - low, "the ranks are symmetric"
    assert coverage(count, low) >= 0.95
    assert coverage(count, low + 1) < 0.95


@pytest.mark.parametrize("count", range(1, 6))
def test_too_few_samples_give_their_extremes(count: int) -> None:
    assert interval_ranks(count) == (0, count - 1)


def test_ranks_move_inwards_by_at_most_one_per_sample() -> None:
    lows = [interval_ranks(count)[0] for count in range(1, 1500)]
    steps = {after - before for before, after in itertools.pairwise(lows)}
    assert steps == {0, 1}


@pytest.mark.parametrize("count", [997, 998, 999, 1000, 1001, 1333, 3001])
def test_nothing_is_lost_with_many_samples(count: int) -> None:
    low, high = interval_ranks(count)
    assert high == count - 1 - low
    assert coverage(count, low) >= 0.95 > coverage(count, low + 1)


Distribution = Callable[[np.random.Generator], np.ndarray]
DISTRIBUTIONS: dict[str, tuple[Distribution, float]] = {
    "normal": (lambda random: random.normal(3, 1, SAMPLE), 3.0),
    "exponential": (lambda random: random.exponential(1, SAMPLE), float(np.log(2))),
    "heavily skewed": (lambda random: random.lognormal(0, 2.5, SAMPLE), 1.0),
    "without a mean": (lambda random: random.standard_cauchy(SAMPLE), 0.0),
    "coarse clock ticks": (
        lambda random: random.binomial(4, 0.5, SAMPLE).astype(float),
        2.0,
    ),
    "mostly one value": (
        lambda random: np.where(random.random(SAMPLE) < 0.7, 5.0, 9.0),
        5.0,
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_simulated_samples_are_covered_whatever_their_distribution(name: str) -> None:
    draw, truth = DISTRIBUTIONS[name]
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(TRIALS):
        low, high = median_interval(draw(random).tolist())
        covered += low <= truth <= high
    assert covered / TRIALS >= LEAST_COVERED


def test_the_interval_is_made_of_samples_and_holds_their_median_in_any_order() -> None:
    values = [9.0, 1.0, 7.0, 3.0, 8.0, 2.0, 6.0, 4.0, 5.0, 10.0]
    assert median_interval(values) == (2.0, 9.0)
    assert median_interval(sorted(values)) == (2.0, 9.0)
    assert median(values) == 5.5


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])
