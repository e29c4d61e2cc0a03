"""The share of the peak rate that a rung reaches, of the memory or of arithmetic, and what was predicted of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from ladder.model.cell import size_label
from ladder.model.sweep import Entry
from ladder.report.markdown import share
from ladder.results import statistics as stats
from ladder.results.statistics import records
from ladder.results.sweep_data import SweepData

_MANY = 1000
"""Operations a byte: an H200 makes 206 of bf16."""


@dataclass(frozen=True)
class Reached:
    """A share, and at which size, if that is not the one that the sweep speaks of."""

    share: float
    size: str = ""


@dataclass(frozen=True)
class Shares:
    """What rungs reach, by the id of their variant, of the peak rate of `of`."""

    of: str
    reached: Mapping[str, Reached]

    def measured(self, entry: Entry) -> str:
        """17.2 %, or 0.04 % at 2^24; empty where there is no result."""
        reached = self.reached.get(entry.variant.id)
        if reached is None:
            return ""
        at = f" at {reached.size}" if reached.size else ""
        return share(reached.share, ".3g") + at

    def predicted(self, entry: Entry) -> str:
        """12 to 20 %; empty where nothing was predicted."""
        if entry.predicted is None:
            return ""
        low, high = (f"{100 * end:.3g}" for end in entry.predicted)
        return f"{low} to {high}\u00a0%"

    def held(self, entry: Entry) -> bool | None:
        """Whether what was predicted came true; None where either is missing."""
        reached = self.reached.get(entry.variant.id)
        if entry.predicted is None or reached is None:
            return None
        low, high = entry.predicted
        return low <= reached.share <= high


def shares_of(data: SweepData) -> Shares | None:
    """Of a sweep that predicts any for this GPU: at its size, else at the largest with a result."""
    if data.sweep.predicted_for != data.source.get("device"):
        return None
    by_memory = _bound_by_memory(data)
    column = "memory_fraction" if by_memory else "peak_fraction"
    timed = data.ok.dropna(subset=column)
    largest_first = timed.sort_values("median_us", ascending=False)
    reached: dict[str, Reached] = {}
    for row in records(pd.concat([stats.at_size(timed, data.size), largest_first])):
        size = stats.size_of(row)
        at = "" if size == data.size else size_label(size)
        reached.setdefault(row["variant"], Reached(float(row[column]), at))
    return Shares("the memory" if by_memory else "arithmetic", reached)


def _bound_by_memory(data: SweepData) -> bool:
    """Without results arithmetic bounds what has more operations a byte than any GPU."""
    rows = data.here if len(data.here) else data.ok
    if len(rows):
        return stats.rate_column(rows) != ("tflops", "TFLOP/s")
    entry, largest = data.sweep.cells[-1]
    variant = entry.variant
    work = data.sweep.problem.work(largest, variant.dtype, variant.params)
    return work.operations < _MANY * work.bytes
