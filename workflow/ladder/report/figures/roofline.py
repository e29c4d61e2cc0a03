"""Roofline: speed over operational intensity, under the measured copy bandwidth and the arithmetic peaks."""

import math
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures import base, style
from ladder.report.steps import path
from ladder.report.sweep_data import FigureData
from ladder.results import statistics as stats
from ladder.results.collect import dtype_peaks

DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
MOST = 10


def _marks(data: FigureData, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with their `intensity`, and whether its bytes were `counted` by the profiler or are the fewest."""
    known = stats.metric_table(data.metrics)
    counters = [known.get(stats.cell_of(row), {}) for row in stats.records(rows)]
    rows = rows.assign(moved=[sum(values.get(name, math.nan) for name in DRAM) for values in counters])
    operations = rows["tflops"] * rows["median_us"] * 1e6
    fewest = rows["gbytes_per_s"] * rows["median_us"] * 1e3
    rows = rows.assign(counted=rows["moved"].notna(), intensity=operations / rows["moved"].fillna(fewest))
    return data.some(rows.dropna(subset="intensity"), "operational intensity")


def _roofs(axis: Axes, data: FigureData, marks: pd.DataFrame) -> float:
    """Draw the roofs from left of every mark and ridge on, and return the highest."""
    copied = data.gpu.get("copy_gbytes_per_s")
    bandwidth = (copied or data.gpu.get("memory_peak_gbytes_per_s") or math.nan) / 1e3
    peaks = {dtype: peak for dtype, peak in dtype_peaks(data.gpu).items() if dtype in data.sweep.dtypes}
    ridges = [peak / bandwidth for peak in peaks.values()]
    start, end = np.nanmin([*ridges, marks["intensity"].min()]) / 2, marks["intensity"].max() * 20
    # The slope ends where it meets the highest peak.
    x = np.array([start, min(end, max(ridges, default=end))])
    if bandwidth > 0:
        text = f"{'measured copy' if copied else 'memory'} {bandwidth:.2f} TB/s"
        axis.plot(x, x * bandwidth, color=style.MUTED, lw=1.6, label=text)
    roofs: dict[tuple[float, str], list[str]] = {}
    for dtype, peak in peaks.items():
        roofs.setdefault((peak, "CUDA cores" if dtype == "fp32" else "tensor cores"), []).append(dtype)
    for (peak, core), alike in roofs.items():
        axis.hlines(peak, np.nanmax([start, peak / bandwidth]), end, color=style.MUTED, lw=1.6)
        text = f"{', '.join(alike)} peak, {core}: {peak:.0f} TFLOP/s"
        place: dict[str, Any] = {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right"}
        axis.annotate(text, (end, peak), va="bottom", fontsize=10, color=style.MUTED, **place)
    axis.set_xlim(start, end)
    return max(peaks.values(), default=0.0)


def _few(data: FigureData, rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest, or of a ladder rungs all along the path to the fastest."""
    if not data.has_rungs:
        return rows.sort_values("speedup", ascending=False).head(MOST)
    rungs = [entry.variant.id for entry in path(data)]
    way = rows.set_index("variant", drop=False).reindex([one for one in rungs if one in set(rows["variant"])])
    return way.iloc[np.unique(np.linspace(0, len(way) - 1, MOST).round().astype(int))].reset_index(drop=True)


def _reference(axis: Axes, rows: pd.DataFrame) -> None:
    """The reference's rate; the profiler did not count its bytes, so that it has no intensity."""
    rate = (rows["tflops"] * rows["median_us"] / rows["reference_median_us"]).median()
    axis.axhline(
        rate, color=style.REFERENCE, ls="--", lw=1.4, label=f"reference: {rate:.3g} TFLOP/s", zorder=2
    )


def draw(data: FigureData) -> Figure:
    """One mark per variant at one size: filled by counted DRAM bytes, hollow by the least there could be."""
    rows = data.here
    rows = data.some(rows[rows["tflops"].notna()], f"floating-point result at {data.size_text}")
    hidden = f" ({MOST} of {len(rows)} variants)" if len(rows) > MOST else ""
    if hidden:
        rows = _few(data, rows)
    marks = _marks(data, rows)
    height = 4.6 + 0.26 * math.ceil((len(marks) + 1) / 3)
    figure, (axis,) = base.canvas(data, height, f"roofline, {data.size_text}{hidden}")
    axis.set(xscale="log", yscale="log")
    highest = _roofs(axis, data, marks)
    _reference(axis, rows)
    # Least bytes are alike for all variants: their marks would hide each other.
    aside = 1.0 if marks["counted"].all() else 1.2
    for index, variant in enumerate(marks["variant"]):
        mark = marks.iloc[[index]]
        x = mark["intensity"] * aside ** (index - (len(marks) - 1) / 2)
        look = {"ms": 8, "mew": 1.8, "ls": "none", "zorder": 4}
        look |= {} if mark["counted"].all() else {"mfc": "white"}
        base.points(axis, index, x, mark, "tflops", data.names[variant], **look)
    axis.set_ylim(marks["tflops"].min() / 1.5, max(highest, marks["tflops"].max()) * 1.6)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(base.some_ticks)
    basis = "filled: DRAM bytes counted; hollow: each operand moved once"
    if marks["counted"].nunique() == 1:
        hollow = "hollow: each operand moved once, marks set side by side"
        basis = "DRAM bytes counted by the profiler" if marks["counted"].all() else hollow
    clock = data.gpu.get("sm_clock_max_mhz")
    at = f"; peaks at the highest clock, {clock} MHz" if clock else ""
    meaning = textwrap.fill(f"({basis}{at})", 88)
    axis.set(xlabel=f"operational intensity, FLOP/byte\n{meaning}", ylabel="TFLOP/s")
    return base.legend_below(figure, axis)
