"""The share of the peak rate that a rung reaches, of the memory or of arithmetic, and what was predicted of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from ladder.model.cell import size_label
from ladder.model.sweep import Entry
from ladder.report.markdown import share
from ladder.results import statistics as stats
from ladder.results.sweep_data import SweepData

_MANY = 1000
"""Operations a byte: an H200 makes 206 of bf16."""


@dataclass(frozen=True)
class Shares:
    """The share of the peak rate of `of` that variants have `reached`, by their ids.

    `elsewhere`: the sizes of those whose result is of another size than the one that the sweep speaks of.
    """

    of: str
    reached: Mapping[str, float]
    elsewhere: Mapping[str, Mapping[str, int]]

    def measured(self, entry: Entry) -> str:
        """17.2 %, or 0.04 % at 2^24; empty where there is no result."""
        variant = entry.variant.id
        size = self.elsewhere.get(variant)
        at = f" at {size_label(size)}" if size else ""
        return share(self.reached.get(variant), ".3g") + at

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
        return low <= reached <= high


def shares_of(data: SweepData) -> Shares | None:
    """Of a sweep that predicts any for this GPU: at its size, else at the largest with a result."""
    if data.sweep.predicted_for != data.source.get("device"):
        return None
    by_memory = _bound_by_memory(data)
    column = "memory_fraction" if by_memory else "peak_fraction"
    timed = data.ok.dropna(subset=column).sort_values("median_us", ascending=False)
    best_first = pd.concat([stats.at_size(timed, data.size), timed])
    reached, elsewhere = {}, {}
    for row in stats.records(best_first.drop_duplicates("variant")):
        reached[row["variant"]] = row[column]
        size = stats.size_of(row)
        if size != data.size:
            elsewhere[row["variant"]] = size
    of = "the memory" if by_memory else "arithmetic"
    return Shares(of, reached, elsewhere)


def _bound_by_memory(data: SweepData) -> bool:
    """Without results arithmetic bounds what has more operations a byte than any GPU."""
    rows = data.here if len(data.here) else data.ok
    if len(rows):
        return stats.rate_column(rows) != ("tflops", "TFLOP/s")
    entry, largest = data.sweep.cells[-1]
    variant = entry.variant
    work = data.sweep.problem.work(largest, variant.dtype, variant.params)
    return work.operations < _MANY * work.bytes
