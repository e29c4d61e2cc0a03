"""Medians and distribution-free intervals, in plain Python: the timing loop needs them without importing pandas."""

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist, median

__all__ = ["interval_ranks", "median", "median_interval"]


@functools.lru_cache(maxsize=4096)
def interval_ranks(count: int, confidence: float = 0.95) -> tuple[int, int]:
    """0-based ranks (low, high) of the order statistics that bracket the median with at least `confidence`.

    The number of samples below the median is Binomial(count, 1/2), whatever the distribution (David & Nagaraja,
    Order Statistics, 7.1). Below 6 samples no pair reaches 95 %: the extremes are returned.
    """
    if count < 1:
        raise ValueError("no samples")
    tail = (1 - confidence) / 2
    if count > 1000:
        # Normal approximation with continuity correction, rounded outwards.
        reach = NormalDist().inv_cdf(1 - tail) * math.sqrt(count) / 2
        low = max(math.floor(count / 2 - 0.5 - reach), 0)
        return low, count - 1 - low
    below = ways = 0
    while (ways := ways + math.comb(count, below)) <= tail * 2**count:
        below += 1
    low = max(below - 1, 0)
    return low, count - 1 - low


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Interval (low, high) that holds the distribution's median with at least `confidence`."""
    ordered = sorted(values)
    low, high = interval_ranks(len(ordered), confidence)
    return ordered[low], ordered[high]
