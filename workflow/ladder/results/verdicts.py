"""A gain, and whether it is faster, slower or tied: the one place that decides it, for words, colours and marks alike.

The interval that another GPU is predicted to read decides. Where nothing is predicted, as in a run on one GPU, it is
the measured one; that of a single session then holds what sessions of its class differ by, too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.measure import choice
from ladder.model.problem import COPY
from ladder.problems.registry import PROBLEMS
from ladder.results.statistics import (
    UNKNOWN,
    Estimate,
    estimate,
    predicted,
    predicted_over,
    ratio,
    records,
    speedup_over,
)

FASTER, TIED, SLOWER = "faster", "tied", "slower"

NORMAL = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""
LIBRARIES = frozenset(
    name for problem in PROBLEMS.values() for name in problem.libraries
) - {COPY}
"""References that choose among algorithms. A copy does not, and counts as a kernel."""
SESSION = {"kernel": 0.0036, "library": choice.SESSION}
"""Standard deviation of log speed-ups from session to session on one GPU, by the kind of reference.

For runs on one GPU, which cannot say it. Source: 593 pairs of sessions over kernels and 653 over libraries, each pair
on one H200.
"""


def kind_of(reference: str) -> str:
    """library or kernel: libraries choose among algorithms, and may choose another one next time."""
    return "library" if reference in LIBRARIES else "kernel"


@dataclass(frozen=True)
class Gain:
    """A speed-up with its 95 % interval, and the interval that another GPU is predicted to read; or another number."""

    measured: Estimate
    predicted: Estimate = UNKNOWN

    @property
    def value(self) -> float:
        return self.measured.value

    @property
    def known(self) -> bool:
        return self.measured.known

    @property
    def deciding(self) -> Estimate:
        """The number with the interval that words follow: the predicted one where there is one."""
        return self.predicted if self.predicted.known else self.measured

    @property
    def verdict(self) -> str:
        """faster, slower or tied: the interval that decides lies above 1, below 1, or holds it."""
        return (
            FASTER
            if self.deciding.low > 1
            else SLOWER
            if self.deciding.high < 1
            else TIED
        )

    def over(self, other: "Gain") -> "Gain":
        """How many times this one is the other, over the same reference."""
        return Gain(
            ratio(self.measured, other.measured), ratio(self.predicted, other.predicted)
        )


NO_GAIN = Gain(UNKNOWN)


def gain(row: Mapping[str, Any]) -> Gain:
    """The speed-up of a row of timings.csv over what it was timed against, by its columns speedup* and predicted_*."""
    return Gain(estimate(row, "speedup"), predicted(row))


def gain_over(row: Mapping[str, Any], other: Mapping[str, Any]) -> Gain:
    """How many times as fast a row is as another one, as `speedup_over` and `predicted_over` say."""
    return Gain(speedup_over(row, other), predicted_over(row, other))


def verdicts(rows: pd.DataFrame) -> "pd.Series[str]":
    """The verdict of each row of timings.csv that has a result."""
    return pd.Series(
        [gain(row).verdict for row in records(rows)], rows.index, dtype=object
    )


def widened(value: Estimate, half_width: float) -> Estimate:
    """A ratio whose interval is widened by a half-width of its logarithm: independent ones add up as squares."""
    below = math.hypot(math.log(value.value / value.low), half_width)
    above = math.hypot(math.log(value.high / value.value), half_width)
    return Estimate(
        value.value, value.value * math.exp(-below), value.value * math.exp(above)
    )


def in_one_session(row: Mapping[str, Any]) -> Estimate:
    """A speed-up read in one session, with the interval that the next session on this GPU falls into.

    `row` has `speedup`, its interval within the session, and `reference`.
    """
    return widened(
        estimate(row, "speedup"), NORMAL * SESSION[kind_of(row["reference"])]
    )
