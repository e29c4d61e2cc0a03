"""Curves: speed over the size, with the reference."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ladder.figures.data import FigureData, along_sizes
from ladder.figures.style import (
    MARKERS,
    PALETTE,
    REFERENCE,
    canvas,
    heading,
    legend_below,
    ratio_limits,
)
from ladder.statistics import count_label, rate_column

MOST = 9
ASIDE = 0.025
"""Distance of neighbouring lines in octaves."""


def _measure(data: FigureData, rows: pd.DataFrame) -> tuple[str, str]:
    """Against a twin kernel the ratio is the answer, against a library the rate is."""
    if data.paired_with_kernel:
        return "speedup", f"speed relative to\n{data.reference_name}"
    return rate_column(rows) or ("median_us", "time (µs)")


def _chosen(rows: pd.DataFrame, column: str) -> list[str]:
    """Variants drawn: all, or the fastest where that many lines would cover each other."""
    order = list(dict.fromkeys(rows["variant"]))
    if len(order) <= MOST:
        return order
    best = rows.groupby("variant")["speedup"].max().sort_values(ascending=False)
    return [name for name in order if name in set(best.index[:MOST])]


def _interval(line: pd.DataFrame, column: str) -> tuple[pd.Series[float], pd.Series[float]]:
    """Ends of the 95 % interval; a rate's follows from the time's, rate = work / time."""
    if f"{column}_low" in line:
        return line[f"{column}_low"], line[f"{column}_high"]
    work = line[column] * line["median_us"]
    return work / line["median_us_high"], work / line["median_us_low"]


def _reference_line(axis: Axes, data: FigureData, rows: pd.DataFrame, column: str, field: str) -> None:
    style: dict[str, Any] = {"color": REFERENCE, "ls": "--", "lw": 1.8, "label": data.reference_name}
    if column == "speedup":
        axis.axhline(1, **style)
        return
    factor = rows["median_us"] / rows["reference_median_us"]
    value = rows["reference_median_us"] if column == "median_us" else rows[column] * factor
    middle = value.groupby(rows[field]).median()
    axis.plot(middle.index.astype(float), middle, **style)


def _panel(axis: Axes, data: FigureData, rows: pd.DataFrame, column: str, field: str) -> None:
    names = data.labels(rows)
    chosen = _chosen(rows, column)
    for index, variant in enumerate(chosen):
        line = rows[rows["variant"] == variant].sort_values(field)
        value = line[column].astype(float)
        low, high = _interval(line, column)
        axis.errorbar(
            # Each line a little aside of its neighbour, so that none covers another.
            line[field].astype(float) * 2 ** (ASIDE * (index - (len(chosen) - 1) / 2)),
            value,
            yerr=[(value - low).clip(lower=0), (high - value).clip(lower=0)],
            marker=MARKERS[index % len(MARKERS)],
            color=PALETTE[index % len(PALETTE)],
            ms=5.5,
            lw=1.6,
            capsize=3,
            label=names[variant],
        )
    _reference_line(axis, data, rows, column, field)
    sizes = sorted({float(value) for value in rows[field]})
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(sizes))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticklabels([count_label(int(size)) for size in sizes])


def draw(data: FigureData) -> Figure:
    """Lines over a log2 size axis; one panel per dtype."""
    rows = data.some(data.ok(), "result to draw over the size")
    column, unit = _measure(data, rows)
    field = along_sizes(data)
    dtypes = [dtype for dtype in data.sweep.dtypes if (rows["dtype"] == dtype).any()]
    cut = rows["variant"].nunique() - MOST * len(dtypes)
    hidden = f" ({MOST} fastest of {rows['variant'].nunique()} variants)" if cut > 0 else ""
    legend_rows = math.ceil((min(rows["variant"].nunique(), MOST) + 1) / 2)
    title = heading(data.sweep.title, f"speed over size{hidden}")
    figure, axes = canvas(data, 4.4 + 0.26 * legend_rows, title, columns=len(dtypes))
    together = all(len(set(size.values())) == 1 for size in data.sweep.sizes)
    fields = data.sweep.problem.size_fields
    name = " = ".join(part.upper() for part in fields) if together and len(fields) > 1 else field
    chosen = {name for dtype in dtypes for name in _chosen(rows[rows["dtype"] == dtype], column)}
    drawn = rows[rows["variant"].isin(chosen)]
    for axis, dtype in zip(axes, dtypes, strict=True):
        _panel(axis, data, rows[rows["dtype"] == dtype], column, field)
        if column == "speedup":
            ratio_limits(axis, drawn)
        else:
            axis.set_ylim(bottom=0)
        axis.set_xlabel(name)
        if len(dtypes) > 1:
            axis.set_title(dtype)
    axes[0].set_ylabel(unit)
    legend_below(figure, axes[0])
    return figure
