"""Small statistics over the tables: selections, parameters as columns, ratios with intervals."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import pandas as pd

from ladder.model.intervals import median, median_interval
from ladder.model.schemas import SIZE_COLUMNS


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)


def count(number: int, noun: str) -> str:
    """1 cell, 2 cells."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries; `to_dict` takes five times as long for a few rows of many columns."""
    names, columns = [str(name) for name in rows], [rows[name].tolist() for name in rows]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def ok_rows(timings: pd.DataFrame, regime: str | None) -> pd.DataFrame:
    """Rows that may be shown as results: status ok, of one regime (all where None)."""
    keep = timings["status"] == "ok"
    if regime is not None:
        keep &= timings["regime"] == regime
    return timings[keep.fillna(False)]


def failures(timings: pd.DataFrame) -> pd.DataFrame:
    """Rows of cells that gave no result, with their reasons."""
    return timings[timings["status"] != "ok"]


def params_of(text: Any) -> dict[str, Any]:
    """Parameters of a row from its JSON column; empty where the column is."""
    return dict(json.loads(text)) if isinstance(text, str) else {}


def parameter(rows: pd.DataFrame, name: str) -> "pd.Series[Any]":
    """One parameter of every row as a column (None where a row's kernel has no such parameter)."""
    return pd.Series([params_of(text).get(name) for text in rows["params"]], index=rows.index, dtype=object)


def size_of(row: Mapping[str, Any]) -> dict[str, int]:
    """The size fields a row has."""
    return {name: int(row[name]) for name in SIZE_COLUMNS if name in row and not pd.isna(row[name])}


def cell_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the rows of one cell have in common, whatever their regime: variant and size."""
    return row["variant"], *size_of(row).items()


def rate_column(rows: pd.DataFrame) -> tuple[str, str] | None:
    """Column and unit of the rate that says most about these rows; None where they do no work.

    Cells that are held against a copy are bound by memory, and operations would only mislead.
    """
    if rows["copy_fraction"].notna().any() or rows["tflops"].isna().any():
        return ("gbytes_per_s", "GB/s") if rows["gbytes_per_s"].notna().any() else None
    return ("tflops", "TFLOP/s") if len(rows) else None


def at_size(rows: pd.DataFrame, size: Mapping[str, int]) -> pd.DataFrame:
    keep = pd.Series(True, index=rows.index)
    for name, value in size.items():
        keep &= (rows[name] == value).fillna(False)
    return rows[keep]


def ratio(own: Estimate, other: Estimate) -> Estimate:
    """own / other; the interval takes the worst ends, so it errs on the wide side."""
    if not (own.known and other.known) or min(other.value, other.low, other.high) <= 0:
        return Estimate(math.nan, math.nan, math.nan)
    return Estimate(own.value / other.value, own.low / other.high, own.high / other.low)


def estimate(row: Mapping[str, Any], column: str) -> Estimate:
    """`column` of a row with COLUMN_low and COLUMN_high."""

    def number(value: Any) -> float:
        return math.nan if pd.isna(value) else float(value)

    value = number(row[column])
    low, high = number(row.get(f"{column}_low")), number(row.get(f"{column}_high"))
    return Estimate(value, value if math.isnan(low) else low, value if math.isnan(high) else high)


def ranking(rows: pd.DataFrame) -> str:
    """Column that orders rows of one size by speed, the fastest the largest.

    The paired ratio where all are held against the same thing, since clocks may move between cells; else the rate,
    for a ratio to a slow twin makes nothing fast.
    """
    against = [name for name in ("reference", "dtype") if name in rows]
    rate = rate_column(rows)
    alike = len(rows[against].drop_duplicates()) == 1
    return "speedup" if alike or rate is None else rate[0]


def fastest(rows: pd.DataFrame) -> dict[str, Any]:
    return records(rows.loc[[rows[ranking(rows)].astype(float).idxmax()]])[0]


def fastest_by_size(rows: pd.DataFrame) -> list[dict[str, Any]]:
    fields = [name for name in SIZE_COLUMNS if rows[name].notna().any()]
    return [fastest(own) for _, own in rows.groupby(["dtype", *fields], sort=False)]


def speedup_over(row: Mapping[str, Any], baseline: Mapping[str, Any]) -> Estimate:
    """How many times faster `row` is than `baseline`: from paired ratios where both have the same reference.

    Falls back on the ratio of the medians, which clocks and temperature may have moved between the two cells.
    """
    if row["variant"] == baseline["variant"]:
        return Estimate(1.0, 1.0, 1.0)
    if row["reference"] == baseline["variant"]:
        return estimate(row, "speedup")
    if not pd.isna(row["reference"]) and row["reference"] == baseline["reference"]:
        paired = ratio(estimate(row, "speedup"), estimate(baseline, "speedup"))
        if paired.known:
            return paired
    return ratio(estimate(baseline, "median_us"), estimate(row, "median_us"))


def metric_table(metrics: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, float]]:
    """Metrics by (sweep, variant, size): name -> value."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in records(metrics):
        if not pd.isna(row["value"]):
            key = (row["sweep"], row["variant"], tuple(size_of(row).items()))
            found.setdefault(key, {})[row["metric"]] = float(row["value"])
    return found


_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
_REQUESTS = "smsp__inst_executed_op_shared"


def access_costs(rows: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Rows with the cost of a warp access: `cycles` by the clock, `wavefronts` by the profiler, `model`.

    What was not recorded is NaN.
    """
    known = metric_table(metrics)
    costs: dict[str, list[float]] = {"cycles": [], "wavefronts": [], "model": []}
    for row in records(rows):
        values = known.get((row["sweep"], row["variant"], tuple(size_of(row).items())), {})
        # A kernel that writes reads each word back once: what it does more often is what it is about.
        operation = max("ld", "st", key=lambda name: values.get(f"{_WAVEFRONTS}_op_{name}.sum", 0.0))
        waves = values.get(f"{_WAVEFRONTS}_op_{operation}.sum", values.get(f"{_WAVEFRONTS}.sum", math.nan))
        # ldmatrix counts its wavefronts but not its requests: then the kernel's own number of accesses stands in.
        requests = max(values.get(f"{_REQUESTS}_{operation}.sum", 0.0), values.get("accesses", 0.0))
        costs["wavefronts"].append(waves / (requests or math.nan))
        costs["cycles"].append(values.get("cycles_per_access", math.nan))
        costs["model"].append(values.get("predicted_wavefronts", math.nan))
    return rows.assign(**costs)


def coverage_interval(covered: int, trials: int) -> tuple[float, float]:
    """95 % Wilson interval of a share (Wilson 1927)."""
    from scipy.stats import binomtest  # takes a second to import

    low, high = binomtest(covered, trials).proportion_ci(method="wilson")
    return float(low), float(high)


def mean_speed(rows: Sequence[Mapping[str, Any]]) -> Estimate:
    """Geometric mean of the speed-ups of `rows`; its interval is that of their ends, which is wide."""
    speeds = [estimate(row, "speedup") for row in rows]
    ends = zip(*((speed.value, speed.low, speed.high) for speed in speeds), strict=True)
    return Estimate(*map(geometric_mean, ends))


def median_of(values: Sequence[float]) -> Estimate:
    """Median of a few cells with its order-statistic interval."""
    return Estimate(median(values), *median_interval(values))
