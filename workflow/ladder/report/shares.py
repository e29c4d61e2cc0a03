"""The share of the peak rate that a rung reaches, of the memory or of arithmetic, and what was predicted of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ladder.model.cell import size_label
from ladder.model.sweep import Entry
from ladder.report.markdown import share
from ladder.results import statistics as stats
from ladder.results.statistics import records
from ladder.results.sweep_data import SweepData


@dataclass(frozen=True)
class Reached:
    """A share, and at which size, if that is not the one that the sweep speaks of."""

    share: float
    size: str = ""

    def __str__(self) -> str:
        return share(self.share, ".3g") + (f" at {self.size}" if self.size else "")


@dataclass(frozen=True)
class Shares:
    """What rungs reach, by the id of their variant, of the peak rate of `of`."""

    of: str
    reached: Mapping[str, Reached]

    def measured(self, entry: Entry) -> str:
        """17.2 %, or 0.04 % at 2^24; empty where there is no result."""
        found = self.reached.get(entry.variant.id)
        return str(found) if found else ""

    def predicted(self, entry: Entry) -> str:
        """12 to 20 %; empty where nothing was predicted."""
        if entry.predicted is None:
            return ""
        low, high = (f"{100 * end:.3g}" for end in entry.predicted)
        return f"{low} to {high}\u00a0%"

    def held(self, entry: Entry) -> bool | None:
        """Whether what was predicted came true; None where either is missing."""
        found = self.reached.get(entry.variant.id)
        if entry.predicted is None or found is None:
            return None
        return entry.predicted[0] <= found.share <= entry.predicted[1]


_MANY = 1000
"""Operations a byte: an H200 makes 206 of bf16."""


def shares_of(data: SweepData) -> Shares | None:
    """Of a sweep that predicts any for this GPU: at its size, else at the largest with a result.

    Without results arithmetic bounds what has more operations a byte than any GPU.
    """
    if data.sweep.predicted_for != data.source.get("device"):
        return None
    rows = data.here if len(data.here) else data.ok
    if len(rows):
        by_memory = stats.rate_column(rows) != ("tflops", "TFLOP/s")
    else:
        one, largest = data.sweep.cells[-1]
        work = data.sweep.problem.work(largest, one.variant.dtype, one.variant.params)
        by_memory = work.operations < _MANY * work.bytes
    column = "memory_fraction" if by_memory else "peak_fraction"
    reached = dict[str, Reached]()
    for row in [
        *records(data.ok.sort_values("median_us", ascending=False)),
        *records(data.here),
    ]:
        if row[column] is not None:
            here = stats.size_of(row) == data.size
            known = reached.get(row["variant"])
            if here or known is None:
                size = "" if here else size_label(stats.size_of(row))
                reached[row["variant"]] = Reached(float(row[column]), size)
    return Shares("the memory" if by_memory else "arithmetic", reached)
