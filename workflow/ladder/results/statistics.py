"""Small statistics over the tables: selections, parameters as columns, ratios with intervals."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pandas import DataFrame

from ladder.model.cell import size_label
from ladder.model.intervals import median, median_interval
from ladder.model.schemas import SIZE_COLUMNS, Fields, TableRow
from ladder.results.counters import (
    SHARED_REQUESTS_OF,
    SHARED_WAVEFRONTS,
    SHARED_WAVEFRONTS_OF,
)

Item = TypeVar("Item")

_FAR = 4
"""From so many times the time of its operations on, its bytes say what a cell is like: nearer to the ridge both do."""

FEW = 50
"""Of fewer cells or readings it says little how often ranges hold: classes of so few are pooled."""

CELL = ["sweep", "variant", "baseline", "dtype", "layout", *SIZE_COLUMNS, "regime"]
"""Columns that say which cell a row is about."""

BOTH = ["cublas", "cublaslt"]
"""The faster of these two libraries is what a choice is over."""
OVER = [f"over_{name}" for name in BOTH]
"""Columns of the speed-up over one of them alone."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)


UNKNOWN = Estimate(math.nan, math.nan, math.nan)


def count(number: int, noun: str) -> str:
    """1 cell, 2 cells."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def from_to(low: str, high: str) -> str:
    """1 to 2; once where both read alike."""
    return low if low == high else f"{low} to {high}"


def listed(names: Sequence[str], most: int, between: str = "; ") -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def grouped(items: Iterable[Item], of: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """Items by a key, in the order in which keys first appear."""
    groups = defaultdict(list)
    for item in items:
        groups[of(item)].append(item)
    return groups


def records(rows: DataFrame) -> list[TableRow]:
    """Rows as dictionaries of Python values, with None where a value is missing.

    This is the only way from a table to words: neither NaN nor pandas' NA may reach an `if` or a template.
    `to_dict` takes many times as long for a few rows of many columns.
    """
    values = rows.to_numpy(dtype=object, copy=True)
    values[pd.isna(values)] = None
    names = rows.columns.tolist()  # which pandas would make anew for each row
    return [dict(zip(names, row, strict=True)) for row in values.tolist()]


def ok_rows(timings: DataFrame, regime: str) -> DataFrame:
    """Rows of a regime that may be shown as results: status ok."""
    return timings[(timings["status"] == "ok") & (timings["regime"] == regime)]


def against_references(timings: DataFrame) -> DataFrame:
    """Rows of cells timed against their sweep's reference, without rungs paired with a baseline."""
    return timings[timings["baseline"].isna()]


def failures(timings: DataFrame) -> DataFrame:
    """Rows of cells that gave no result, with their reasons."""
    return timings[timings["status"] != "ok"]


def changing(variants: Sequence[Fields]) -> list[str]:
    """Parameters that change from variant to variant, of those that have them."""
    names = dict.fromkeys(name for params in variants for name in params)
    return [
        name
        for name in names
        if len({params[name] for params in variants if name in params}) > 1
    ]


def parameter(rows: DataFrame, name: str) -> "pd.Series[Any]":
    """One parameter of every row as a column (None where a row's kernel has no such parameter)."""
    return pd.Series(
        [json.loads(text).get(name) for text in rows["params"]],
        index=rows.index,
        dtype=object,
    )


def size_of(row: Fields) -> dict[str, int]:
    """The size fields a row has."""
    return {name: int(row[name]) for name in SIZE_COLUMNS if row.get(name) is not None}


def cell_of(row: Fields) -> tuple[Any, ...]:
    """What the rows of one cell have in common, whatever their regime: sweep, variant and size."""
    return row["sweep"], row["variant"], *size_of(row).items()


def identifier(row: TableRow) -> str:
    """A row as commands name it: SWEEP/VARIANT@SIZE:REGIME, ~BASELINE paired with that rung."""
    baseline = row.get("baseline")
    beside = f"~{baseline}" if baseline else ""
    return f"{row['sweep']}/{row['variant']}@{size_label(size_of(row))}:{row['regime']}{beside}"


def rate_column(rows: DataFrame) -> tuple[str, str] | None:
    """Column and unit of the rate that says most about these rows; None where they do no work.

    Cells that are held against a copy, and those whose bytes take far longer at the peak rates than their operations,
    are bound by memory: operations would only mislead.
    Columns: memory_fraction, peak_fraction, copy_fraction, tflops, gbytes_per_s.
    """
    if rows.empty:
        return None
    # Rows of a single record have None for a missing number.
    moves = rows["memory_fraction"].astype(float)
    computes = rows["peak_fraction"].astype(float)
    bound_by_memory = (
        rows["copy_fraction"].notna().any()
        or rows["tflops"].isna().any()
        or (moves > _FAR * computes).all()
    )
    if not bound_by_memory:
        return "tflops", "TFLOP/s"
    return ("gbytes_per_s", "GB/s") if rows["gbytes_per_s"].notna().any() else None


def at_size(rows: DataFrame, size: Mapping[str, int]) -> DataFrame:
    """Rows of one size: its fields are columns."""
    for name, value in size.items():
        rows = rows[rows[name] == value]
    return rows


def ratio(value: Estimate, other: Estimate) -> Estimate:
    """value / other, of which neither says anything about the other: half-widths of logarithms add up as squares.

    That is the first-order propagation of errors (JCGM 100:2008, 5.1.2), exact for logarithms.
    """
    if not (value.known and other.known):
        return UNKNOWN
    if min(value.low, value.value, other.low, other.value) <= 0:
        return UNKNOWN
    quotient = value.value / other.value
    below = math.hypot(
        math.log(value.value / value.low), math.log(other.high / other.value)
    )
    above = math.hypot(
        math.log(value.high / value.value), math.log(other.value / other.low)
    )
    return Estimate(quotient, quotient * math.exp(-below), quotient * math.exp(above))


def estimate(row: Fields, column: str) -> Estimate:
    """`column` of a row with COLUMN_low and COLUMN_high; the value itself where an end is missing."""
    value = row.get(column)
    if value is None:
        return UNKNOWN
    low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
    return Estimate(
        value, value if low is None else low, value if high is None else high
    )


def comparable(rows: DataFrame) -> bool:
    """Whether all were timed against libraries, or against one kernel, so that their speed-ups compare.

    Columns: reference, dtype.
    """
    cells = zip(rows["reference"], rows["dtype"], strict=True)
    over_kernel = any(f"-{dtype}" in reference for reference, dtype in cells)
    return not over_kernel or rows["reference"].nunique() == 1


def ranking(rows: DataFrame) -> "pd.Series[float]":
    """What orders rows of one size by speed, the fastest the largest.

    The paired ratio where all are timed against libraries or one baseline, since clocks may move between cells; else
    the inverse of the cycles, for a large ratio to a slow baseline makes nothing fast, nor does a high clock.
    Columns: reference, dtype, speedup, sm_clock_mhz, median_us.
    """
    if comparable(rows):
        return rows["speedup"]
    clock = rows["sm_clock_mhz"]
    cycles = rows["median_us"] * clock.fillna(clock.median()).fillna(1.0)
    return 1 / cycles


def contenders(rows: DataFrame, per: Sequence[str] = ()) -> DataFrame:
    """Rows among which the fastest is looked for, alone or for each value of some columns.

    Those that were measured again after they had been chosen as the fastest; where there are none, all.
    Columns: fresh, and those in `per`.
    """
    fresh = rows["fresh"].fillna(False).astype(bool)
    if not per:
        return rows[fresh] if fresh.any() else rows
    columns = [rows[name] for name in per]
    has_fresh = fresh.groupby(columns, dropna=False).transform("any")
    return rows[fresh | ~has_fresh]


def fastest(rows: DataFrame) -> TableRow:
    """The row of the fastest of the contenders; columns as of `contenders` and `ranking`."""
    rows = contenders(rows)
    return records(rows.loc[[ranking(rows).idxmax()]])[0]


MetricTable = dict[tuple[Any, ...], dict[str, float]]
"""Of each cell, as `cell_of` has it, the name of a metric and its value."""


def metric_table(metrics: DataFrame) -> MetricTable:
    """By cell the name of a metric and its value. Columns: those of a cell (`cell_of`), metric, value."""
    by_cell: MetricTable = {}
    for row in records(metrics.dropna(subset="value")):
        by_cell.setdefault(cell_of(row), {})[row["metric"]] = row["value"]
    return by_cell


COSTS = ["cycles", "wavefronts", "model"]


def access_costs(rows: DataFrame, metrics: DataFrame) -> DataFrame:
    """Rows with the cost of a warp access: `cycles` by the clock, `wavefronts` by the profiler, `model`.

    What was not recorded is NaN. Columns of rows: those of a cell (`cell_of`); of metrics as in `metric_table`.
    """
    by_cell = metric_table(metrics)
    costs = []
    for row in records(rows):
        counted = by_cell.get(cell_of(row), {})
        loads = counted.get(SHARED_WAVEFRONTS_OF.format("ld"), 0.0)
        stores = counted.get(SHARED_WAVEFRONTS_OF.format("st"), 0.0)
        # A kernel that writes reads each word back once: what it does more often is what it is about.
        operation = "ld" if loads >= stores else "st"
        both = counted.get(SHARED_WAVEFRONTS)
        wavefronts = counted.get(SHARED_WAVEFRONTS_OF.format(operation), both)
        # ldmatrix counts its wavefronts but not its requests: then the kernel's own number of accesses stands in.
        requests = counted.get(SHARED_REQUESTS_OF.format(operation), 0.0)
        requests = max(requests, counted.get("accesses", 0.0))
        cost = {
            "cycles": counted.get("cycles_per_access"),
            "model": counted.get("predicted_wavefronts"),
        }
        if wavefronts is not None and requests:
            cost["wavefronts"] = wavefronts / requests
        costs.append(cost)
    table = DataFrame(costs, rows.index, COSTS, dtype=float)
    off = (table["cycles"] / table["model"] - 1).abs()
    return rows.assign(**table, off=off)


def against_itself(sessions: DataFrame) -> DataFrame:
    """Sessions of cells whose reference is the same kernel: a sweep against one of its kernels has a few.

    Takes and returns rows of sessions.csv, with `covers`: whether the 95 % interval of the speed-up holds 1. What a
    session measured once and several sweeps show is one row.
    """
    rows = sessions[sessions["reference"] == sessions["variant"]]
    rows = rows.drop_duplicates(
        ["session", "variant", "dtype", "layout", "regime", *SIZE_COLUMNS]
    )
    return rows.assign(
        covers=(rows["speedup_low"] <= 1.0) & (rows["speedup_high"] >= 1.0)
    )


def coverage_interval(covered: int, trials: int) -> tuple[float, ...]:
    """95 % Wilson interval of a share (Wilson 1927)."""
    from scipy.stats import binomtest  # takes a second to import

    return tuple(binomtest(covered, trials).proportion_ci(method="wilson"))


def lag_1(values: Sequence[float]) -> float:
    """Autocorrelation of successive values; 0 where they do not differ."""
    if np.ptp(values) == 0:
        return 0.0
    deviations = np.subtract(values, np.mean(values))
    return float(deviations[1:] @ deviations[:-1] / (deviations @ deviations))


def median_of(values: Sequence[float]) -> Estimate:
    """Median of a few cells with its order-statistic interval."""
    return Estimate(median(values), *median_interval(values))
