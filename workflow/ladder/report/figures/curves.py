"""Curves: speed over the size, with the reference: as a rate where there is one, and as the ratio to it."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from ladder.report.figures.data import FigureData, along_sizes
from ladder.report.figures.style import (
    MARKERS,
    PALETTE,
    REFERENCE,
    canvas,
    heading,
    legend_below,
    legend_columns,
    ratio_limits,
    some_ticks,
)
from ladder.results.statistics import count_label, rate_column, records

MOST = 9
_LONGEST_NAME = 30
"""Characters of a reference that fit beside the axis."""
_LEGEND_WIDTH = 44
_MOST_TICKS = 12
"""Sizes on the axes of all panels together."""

_LOGARITHMIC = 10
"""From this ratio of the largest to the smallest rate on, the axis counts decades."""

ASIDE = 0.025
"""Distance of neighbouring lines in octaves."""


def _measures(data: FigureData, rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Columns drawn one below the other, and their labels.

    Against a twin kernel the ratio is the answer. Against a library the rate is, but it spans decades over the
    sizes and hides what lies close together, so the ratio stands below it.
    """
    # A name longer than the axis stands in the legend alone.
    short = len(data.reference_name) <= _LONGEST_NAME
    what = (
        f"\n{data.reference_name}" if short else " its twin" if data.paired_with_kernel else "\nthe reference"
    )
    ratio = ("speedup", f"speed relative to{what}")
    return [ratio] if data.paired_with_kernel else [rate_column(rows) or ("median_us", "time (µs)"), ratio]


def _chosen(rows: pd.DataFrame) -> list[str]:
    """Variants drawn: all, or the best at any size where that many lines would cover each other."""
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
    label = textwrap.fill(data.reference_name, _LEGEND_WIDTH)
    style: dict[str, Any] = {"color": REFERENCE, "ls": "--", "lw": 1.8, "label": label}
    if column == "speedup":
        axis.axhline(1, **style)
        return
    factor = rows["median_us"] / rows["reference_median_us"]
    value = rows["reference_median_us"] if column == "median_us" else rows[column] * factor
    middle = value.groupby(rows[field]).median()
    axis.plot(middle.index.astype(float), middle, **style)


def _panel(
    axis: Axes, data: FigureData, rows: pd.DataFrame, column: str, field: str, most_ticks: int
) -> None:
    # Named as in the table, whichever are drawn.
    names = data.labels(data.timings)
    # The panel's title says the dtype.
    endings = {str(row["variant"]): f" ({row['dtype']})" for row in records(rows)}
    chosen = _chosen(rows)
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
            label=names[variant].removesuffix(endings[variant]),
        )
    _reference_line(axis, data, rows, column, field)
    sizes = sorted({float(value) for value in rows[field]})
    sizes = sizes[:: math.ceil(len(sizes) / most_ticks)]
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(sizes))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticklabels([count_label(int(size)) for size in sizes])


def _rate_limits(axis: Axes, values: pd.Series[float]) -> None:
    """From 0 on, or by decades where small sizes would otherwise lie on the axis."""
    if values.max() < _LOGARITHMIC * values.min():
        axis.set_ylim(bottom=0, top=1.02 * axis.get_ylim()[1])
        return
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    few = values.max() < _LOGARITHMIC**2 * values.min()
    axis.yaxis.set_minor_formatter(FuncFormatter(some_ticks) if few else NullFormatter())


def draw(data: FigureData) -> Figure:
    """Lines over a log2 size axis; a row of panels per measure, in it one per dtype."""
    # A reference against itself is the dashed line already.
    rows = data.ok()
    rows = data.some(rows[rows["variant"] != rows["reference"]], "result to draw over the size")
    measures = _measures(data, rows)
    field = along_sizes(data)
    dtypes = [dtype for dtype in data.sweep.dtypes if (rows["dtype"] == dtype).any()]
    per_dtype = {dtype: rows[rows["dtype"] == dtype] for dtype in dtypes}
    variants = rows["variant"].nunique()
    left_out = variants > MOST * len(dtypes)
    # A rung that is slow where it matters may be ahead at another size.
    hidden = f" (the {MOST} of {variants} variants with the highest ratio at any size)" if left_out else ""
    labels = [data.labels(data.timings)[name] for name in _chosen(rows)]
    legend_rows = math.ceil((min(len(labels), MOST) + 2) / legend_columns(labels))
    title = heading(data.sweep.title, f"speed over size{hidden}")
    height = 2.4 + 2.2 * len(measures) if len(measures) > 1 else 4.4
    figure, axes = canvas(
        data, height + 0.24 * legend_rows, title, columns=len(dtypes), rows=len(measures), sharex="col"
    )
    together = all(len(set(size.values())) == 1 for size in data.sweep.sizes)
    fields = data.sweep.problem.size_fields
    name = " = ".join(part.upper() for part in fields) if together and len(fields) > 1 else field
    drawn = pd.concat([own[own["variant"].isin(_chosen(own))] for own in per_dtype.values()])
    for row, (column, unit) in enumerate(measures):
        line = axes[row * len(dtypes) :][: len(dtypes)]
        for axis, (dtype, own) in zip(line, per_dtype.items(), strict=True):
            _panel(axis, data, own, column, field, _MOST_TICKS // len(dtypes))
            if column == "speedup":
                ratio_limits(axis, drawn)
            else:
                _rate_limits(axis, own[own["variant"].isin(drawn["variant"])][column])
            if row == len(measures) - 1:
                axis.set_xlabel(name)
            if row == 0 and len(dtypes) > 1:
                axis.set_title(dtype)
        line[0].set_ylabel(unit)
    legend_below(figure, axes[0])
    return figure
