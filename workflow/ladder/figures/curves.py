"""Curves: speed over the size, with the reference."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ladder.figures.data import FigureData, along_sizes
from ladder.figures.style import MARKERS, PALETTE, REFERENCE, canvas, legend_below
from ladder.statistics import count_label

MOST = 9


def _measure(rows: pd.DataFrame) -> tuple[str, str]:
    if rows["tflops"].notna().any():
        return "tflops", "TFLOP/s"
    if rows["gbytes_per_s"].notna().any():
        return "gbytes_per_s", "GB/s (least bytes / time)"
    return "median_us", "time (us)"


def _chosen(rows: pd.DataFrame, column: str) -> list[str]:
    """Variants drawn: all, or the fastest where that many lines would cover each other."""
    order = list(dict.fromkeys(rows["variant"]))
    if len(order) <= MOST:
        return order
    best = rows.groupby("variant")["speedup"].max().sort_values(ascending=False)
    return [name for name in order if name in set(best.index[:MOST])]


def _panel(axis: Axes, data: FigureData, rows: pd.DataFrame, column: str, field: str) -> None:
    names = data.labels(rows)
    chosen = _chosen(rows, column)
    for index, variant in enumerate(chosen):
        line = rows[rows["variant"] == variant].sort_values(field)
        value = line[column].astype(float)
        # The rate's interval follows from the time's: rate = work / time.
        scale = value * line["median_us"] if column != "median_us" else None
        low = scale / line["median_us_high"] if scale is not None else line["median_us_low"]
        high = scale / line["median_us_low"] if scale is not None else line["median_us_high"]
        axis.errorbar(
            line[field].astype(float),
            value,
            yerr=[(value - low).clip(lower=0), (high - value).clip(lower=0)],
            marker=MARKERS[index % len(MARKERS)],
            color=PALETTE[index % len(PALETTE)],
            ms=5.5,
            lw=1.6,
            capsize=3,
            label=names[variant],
        )
    reference = rows.copy()
    factor = reference["median_us"] / reference["reference_median_us"]
    reference["reference_value"] = (
        reference[column] * factor if column != "median_us" else reference["reference_median_us"]
    )
    libraries = sorted(reference["reference"].dropna().unique())
    if len(libraries) and not set(libraries) & set(rows["variant"]):
        middle = reference.groupby(field)["reference_value"].median()
        text = " / ".join(libraries) if len(libraries) < 3 else "reference"
        axis.plot(middle.index.astype(float), middle, color=REFERENCE, ls="--", lw=1.8, label=text)
    sizes = sorted({float(value) for value in rows[field]})
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(sizes))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticklabels([count_label(int(size)) for size in sizes])


def draw(data: FigureData) -> Figure:
    """Lines over a log2 size axis; one panel per dtype."""
    rows = data.some(data.ok(), "result to draw over the size")
    column, unit = _measure(rows)
    field = along_sizes(data)
    dtypes = [dtype for dtype in data.sweep.dtypes if (rows["dtype"] == dtype).any()]
    cut = rows["variant"].nunique() - MOST * len(dtypes)
    hidden = f" ({MOST} fastest of {rows['variant'].nunique()} variants)" if cut > 0 else ""
    legend_rows = math.ceil((min(rows["variant"].nunique(), MOST) + 1) / 3)
    title = f"{data.sweep.title}: speed over size{hidden}"
    figure, axes = canvas(data, 4.4 + 0.26 * legend_rows, title, columns=len(dtypes))
    together = all(len(set(size.values())) == 1 for size in data.sweep.sizes)
    fields = data.sweep.problem.size_fields
    name = " = ".join(part.upper() for part in fields) if together and len(fields) > 1 else field
    for axis, dtype in zip(axes, dtypes, strict=True):
        _panel(axis, data, rows[rows["dtype"] == dtype], column, field)
        axis.set_ylim(bottom=0)
        axis.set_xlabel(name)
        if len(dtypes) > 1:
            axis.set_title(dtype)
    axes[0].set_ylabel(unit)
    legend_below(figure, axes[0], columns=3)
    return figure
