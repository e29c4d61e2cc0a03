"""A gain, and whether it is faster, slower or tied: the one place that decides it, for words, colours and marks alike.

The interval that another GPU is predicted to read decides. Where nothing is predicted, as in a run on one GPU, it is
the measured one; that of a single session then holds what sessions of its class differ by, too.
"""

from dataclasses import dataclass

import pandas as pd
from pandas import DataFrame

from ladder.measure import choice
from ladder.model.problem import COPY
from ladder.model.schemas import Fields, TableRow
from ladder.problems.registry import PROBLEMS
from ladder.results.statistics import (
    UNKNOWN,
    Estimate,
    estimate,
    ratio,
    records,
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
        if self.deciding.low > 1:
            return FASTER
        return SLOWER if self.deciding.high < 1 else TIED

    def over(self, other: "Gain") -> "Gain":
        """How many times this one is the other, over the same reference."""
        return Gain(
            ratio(self.measured, other.measured), ratio(self.predicted, other.predicted)
        )


NO_GAIN = Gain(UNKNOWN)


def gain(row: Fields) -> Gain:
    """The speed-up of a row of timings.csv over what it was timed against, by its columns speedup* and predicted_*."""
    measured = estimate(row, "speedup")
    columns = "speedup", "predicted_low", "predicted_high"
    if any(row.get(name) is None for name in columns):
        return Gain(measured)
    return Gain(measured, Estimate(*(row[name] for name in columns)))


def gain_over(row: TableRow, other: TableRow) -> Gain:
    """How many times as fast a row is as another one: from paired ratios where both have the same reference.

    Without one it is the ratio of the medians, which clocks and temperature may have moved between the two cells;
    nothing is predicted of it then.
    """
    if row["variant"] == other["variant"]:
        same = Estimate(1.0, 1.0, 1.0)
        return Gain(same, same)
    if row["reference"] == other["variant"]:
        return gain(row)
    if row["reference"] == other["reference"]:
        return gain(row).over(gain(other))
    return Gain(ratio(estimate(other, "median_us"), estimate(row, "median_us")))


def verdicts(rows: DataFrame) -> "pd.Series[str]":
    """The verdict of each row of timings.csv that has a result."""
    return pd.Series(
        [gain(row).verdict for row in records(rows)], rows.index, dtype=object
    )
