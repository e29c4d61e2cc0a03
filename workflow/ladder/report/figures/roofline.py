"""Roofline: speed over operational intensity, under the measured copy bandwidth and the arithmetic peaks."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from ladder.report.figures import base, style
from ladder.report.ladder_steps import path_to_fastest, steps
from ladder.report.markdown import number
from ladder.report.titles import rival
from ladder.results import statistics as stats
from ladder.results.collect import dtype_peaks
from ladder.results.counters import DRAM_READ, DRAM_WRITE
from ladder.results.environment import boost_clock_mhz
from ladder.results.sweep_data import FigureData

MOST = 9
_SHORT = 100  # ratio of the ends of an axis below which it names more than powers of ten


def _marks(data: FigureData, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with their `intensity`, and whether its bytes were `counted` by the profiler or are the fewest."""
    known = stats.metric_table(data.metrics)
    counters = [known.get(stats.cell_of(row), {}) for row in stats.records(rows)]
    rows = rows.assign(
        moved=[sum(values.get(name, math.nan) for name in (DRAM_READ, DRAM_WRITE)) for values in counters]
    )
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
    start = np.nanmin([*ridges, marks["intensity"].min()]) / 2
    end = np.nanmax([*(2 * ridge for ridge in ridges), marks["intensity"].max() * 4])
    # The slope ends where it meets the highest peak.
    x = np.array([start, min(end, max(ridges, default=end))])
    if bandwidth > 0:
        text = f"{'measured copy' if copied else 'memory'} {bandwidth:.2f} TB/s"
        axis.plot(x, x * bandwidth, color=style.MUTED, lw=1.6)
        look: dict[str, Any] = {
            "xytext": (6, -4),
            "textcoords": "offset points",
            "color": style.MUTED,
            "fontsize": 10,
        }
        axis.annotate(text, (x[0] * 1.5, x[0] * 1.5 * bandwidth), va="top", **look)
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
    """The fastest, or of a ladder the rungs of its path that gain most, and its ends."""
    if not data.has_rungs:
        return rows.sort_values("speedup", ascending=False).head(MOST)
    way = [entry.variant.id for entry in path_to_fastest(data) if entry.variant.id in set(rows["variant"])]
    gains = {step.row["variant"]: step.gain.value for step in steps(data) if step.gain.known}
    most = sorted(way[1:-1], key=lambda variant: -gains.get(variant, 0.0))[: MOST - 2]
    kept = [variant for variant in way if variant in {way[0], way[-1], *most}]
    return rows.set_index("variant", drop=False).loc[kept].reset_index(drop=True)


def draw(data: FigureData) -> Figure:
    """One mark per variant at one size: filled by counted DRAM bytes, hollow by the least there could be."""
    rows = data.here
    rows = data.some(rows[rows["tflops"].notna()], f"floating-point result at {data.size_text}")
    every = len(rows)
    if every > MOST:
        rows = _few(data, rows)
    marks = _marks(data, rows)
    hidden = f", {len(rows)} of {every} variants" if len(rows) < every else ""
    figure, (axis,) = base.canvas(data, 5.0, f"{data.size_text}{hidden}")
    axis.set(xscale="log", yscale="log")
    highest = _roofs(axis, data, marks)
    rate = (rows["tflops"] * rows["median_us"] / rows["reference_median_us"]).median()
    axis.axhline(rate, color=style.REFERENCE, ls="--", lw=1.2, zorder=2)
    # Least bytes are alike for all variants: their marks would hide each other.
    aside = 1.0 if marks["counted"].all() else 1.2
    places = [
        (row["intensity"] * aside ** (index - (len(marks) - 1) / 2), row["tflops"], row)
        for index, row in enumerate(stats.records(marks))
    ]
    for x, y, _ in places:
        axis.plot(
            [x], [y], "o", ms=7, color=style.AHEAD, mfc=None if marks["counted"].all() else "white", zorder=4
        )
    axis.plot(
        [x for x, _, _ in places], [y for _, y, _ in places], color=style.AHEAD, lw=0.8, alpha=0.5, zorder=3
    )
    axis.set_ylim(marks["tflops"].min() / 1.5, max(highest, marks["tflops"].max()) * 1.6)
    for own in (axis.xaxis, axis.yaxis):
        own.set_major_formatter("{x:g}")
        own.set_minor_formatter(NullFormatter())
    # Powers of ten are too few of a short axis.
    for upright, (low, high) in enumerate((axis.get_xlim(), axis.get_ylim())):
        if high < _SHORT * low:
            base.factor_axis(axis, low, high, upright=bool(upright))
    ends = [
        (x, y, base.broken(f"{data.names[row['variant']]}, {number(y, 3)}"), style.INK)
        for x, y, row in places
    ]
    ends.append((axis.get_xlim()[1], float(rate), f"{rival(data)}, {number(rate, 3)}", style.REFERENCE))
    base.at_ends(axis, 3.6, ends)
    basis = "filled: DRAM bytes counted; hollow: each operand moved once"
    if marks["counted"].nunique() == 1:
        hollow = "each operand moved once, marks set side by side"
        basis = "DRAM bytes counted by the profiler" if marks["counted"].all() else hollow
    clock = boost_clock_mhz(data.gpu)
    at = f";\npeaks at the boost clock, {clock:g} MHz" if clock else ""
    axis.set(xlabel=f"operational intensity, FLOP/byte\n({basis}{at})", ylabel="TFLOP/s")
    return figure
