"""Medians and distribution-free intervals, in plain Python: the timing loop needs them without importing pandas."""

import functools
import math
from collections.abc import Sequence
from statistics import fmean, stdev
from statistics import median as median  # for others, too

# 97.5 % quantiles by degrees of freedom.
_STUDENT = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
}


@functools.cache
def interval_ranks(count: int) -> tuple[int, int]:
    """0-based ranks (low, high) of the order statistics that bracket the median with at least 95 %.

    The number of samples below the median is Binomial(count, 1/2), whatever the distribution (David & Nagaraja,
    Order Statistics, 7.1). Below 6 samples no pair reaches 95 %: the extremes are returned.
    """
    if count < 1:
        raise ValueError("no samples")
    below, ways, outside, limit = 0, 1, 1, 2**count // 40  # 2.5 % on each side
    while outside <= limit:
        below += 1
        ways = ways * (count - below + 1) // below
        outside += ways
    low = max(below - 1, 0)
    return low, count - 1 - low


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Interval (low, high) that holds the distribution's median with at least 95 %."""
    ordered = sorted(values)
    low, high = interval_ranks(len(ordered))
    return ordered[low], ordered[high]


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """A ratio with its 95 % interval, from at least two that were measured: (value, low, high).

    The median and order statistics around it; below 6, of which none reach 95 %, the geometric mean and Student's t.
    """
    if len(ratios) - 1 > len(_STUDENT):
        return median(ratios), *median_interval(ratios)
    logs = [math.log(ratio) for ratio in ratios]
    half = _STUDENT[len(logs) - 1] * stdev(logs) / math.sqrt(len(logs))
    middle = fmean(logs)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def abba_ratios(
    variant_us: Sequence[float], reference_us: Sequence[float]
) -> list[float]:
    """The reference's time over the variant's, of each group of two launches a side."""
    own, other = variant_us, reference_us
    return [sum(other[i : i + 2]) / sum(own[i : i + 2]) for i in range(0, len(own), 2)]
