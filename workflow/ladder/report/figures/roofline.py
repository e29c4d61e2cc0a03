"""Roofline: speed over operational intensity, under the measured copy bandwidth and the arithmetic peaks."""

import math
from typing import Any

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
_SHORT = (
    100  # ratio of the ends of an axis below which it names more than powers of ten
)
_ASIDE = 1.2  # factor between marks that would hide each other


def draw(data: FigureData) -> Figure:
    """One mark per variant at one size: filled by counted DRAM bytes, hollow by the least there could be."""
    rows = data.here
    rows = data.some(
        rows[rows["tflops"].notna()], f"floating-point result at {data.size_text}"
    )
    shown = rows if len(rows) <= MOST else _few(data, rows)
    marks = _marks(data, shown)
    hidden = f", {len(shown)} of {len(rows)} variants" if len(shown) < len(rows) else ""
    figure, (axis,) = base.canvas(data, 5.0, f"{data.size_text}{hidden}")
    axis.set(xscale="log", yscale="log")
    highest = max(_roofs(axis, data, marks), marks["tflops"].max())
    counted = bool(marks["counted"].all())
    x, y = marks["intensity"], marks["tflops"]
    if not counted:  # least bytes are alike for all variants
        x = x * [
            _ASIDE ** (place - (len(marks) - 1) / 2) for place in range(len(marks))
        ]
    axis.plot(x, y, color=style.AHEAD, lw=0.8, alpha=0.5, zorder=3)
    for place in zip(x, y, strict=True):
        axis.plot(
            *place,
            "o",
            ms=7,
            color=style.AHEAD,
            mfc=style.AHEAD if counted else "white",
            zorder=4,
        )
    axis.set_ylim(marks["tflops"].min() / 1.5, highest * 1.6)
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter(NullFormatter())
    for upright, (low, high) in enumerate((axis.get_xlim(), axis.get_ylim())):
        if high < _SHORT * low:
            base.factor_axis(axis, low, high, upright=bool(upright))
    rate = float(
        (shown["tflops"] * shown["median_us"] / shown["reference_median_us"]).median()
    )
    axis.axhline(rate, color=style.REFERENCE, ls="--", lw=1.2, zorder=2)
    names = [
        base.broken(f"{data.names[row['variant']]}, {number(row['tflops'], 3)}")
        for row in stats.records(marks)
    ]
    ends = [base.End(*end, style.INK) for end in zip(x, y, names, strict=True)]
    ends.append(
        base.End(
            axis.get_xlim()[1],
            rate,
            f"{rival(data)}, {number(rate, 3)}",
            style.REFERENCE,
        )
    )
    base.name_ends(axis, 3.6, ends)
    axis.set(
        xlabel=f"operational intensity, FLOP/byte\n({_basis(data, marks)})",
        ylabel="TFLOP/s",
    )
    return figure


def _few(data: FigureData, rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest, or of a ladder the rungs of its path that gain most, and its ends."""
    if not data.has_rungs:
        return rows.sort_values("speedup", ascending=False).head(MOST)
    path = [entry.variant.id for entry in path_to_fastest(data)]
    path = [variant for variant in path if variant in {*rows["variant"]}]
    gains = {
        step.row["variant"]: step.gain.value for step in steps(data) if step.gain.known
    }
    ranked = sorted(path[1:-1], key=lambda variant: -gains.get(variant, 0.0))
    kept = {path[0], path[-1], *ranked[: MOST - 2]}
    return rows.set_index("variant", drop=False).loc[
        [variant for variant in path if variant in kept]
    ]


def _marks(data: FigureData, rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with their `intensity`, and whether its bytes were `counted` by the profiler or are the fewest."""
    metrics = stats.metric_table(data.metrics)
    moved = list[float]()
    for row in stats.records(rows):
        counters = metrics.get(stats.cell_of(row), {})
        moved.append(
            sum(counters.get(name, math.nan) for name in (DRAM_READ, DRAM_WRITE))
        )
    counted = pd.Series(moved, rows.index, dtype=float)
    operations = rows["tflops"] * rows["median_us"] * 1e6
    fewest = rows["gbytes_per_s"] * rows["median_us"] * 1e3
    rows = rows.assign(
        counted=counted.notna(), intensity=operations / counted.fillna(fewest)
    )
    return data.some(rows.dropna(subset="intensity"), "operational intensity")


def _roofs(axis: Axes, data: FigureData, marks: pd.DataFrame) -> float:
    """Draw the roofs from left of every mark and ridge on, and return the highest."""
    copied = data.gpu.get("copy_gbytes_per_s")
    bandwidth = (copied or data.gpu.get("memory_peak_gbytes_per_s") or 0.0) / 1e3
    roofs = dict[tuple[float, str], list[str]]()
    for dtype, peak in dtype_peaks(data.gpu).items():
        if dtype in data.sweep.dtypes:
            core = "CUDA cores" if dtype == "fp32" else "tensor cores"
            roofs.setdefault((peak, core), []).append(dtype)
    ridges = [peak / bandwidth for peak, _ in roofs] if bandwidth else []
    start = min([*ridges, marks["intensity"].min()]) / 2
    end = max([2 * ridge for ridge in ridges] + [4 * marks["intensity"].max()])
    look: dict[str, Any] = {"color": style.MUTED, "lw": 1.6}
    if bandwidth:
        # The slope ends where it meets the highest peak.
        slope = [start, min(end, max(ridges, default=end))]
        axis.plot(slope, [intensity * bandwidth for intensity in slope], **look)
        text = f"{'measured copy' if copied else 'memory'} {bandwidth:.2f} TB/s"
        base.note(
            axis,
            text,
            (1.5 * start, 1.5 * start * bandwidth),
            (6, -4),
            va="top",
            fontsize=10,
        )
    for (peak, core), dtypes in roofs.items():
        axis.hlines(peak, peak / bandwidth if bandwidth else start, end, **look)
        text = f"{', '.join(dtypes)} peak, {core}: {peak:.0f} TFLOP/s"
        base.note(
            axis, text, (end, peak), (-4, 4), va="bottom", ha="right", fontsize=10
        )
    axis.set_xlim(start, end)
    return max((peak for peak, _ in roofs), default=0.0)


def _basis(data: FigureData, marks: pd.DataFrame) -> str:
    """Which bytes the intensity counts, and at which clock the peaks are."""
    basis = "filled: DRAM bytes counted; hollow: each operand moved once"
    if marks["counted"].all():
        basis = "DRAM bytes counted by the profiler"
    elif not marks["counted"].any():
        basis = "each operand moved once, marks set side by side"
    clock = boost_clock_mhz(data.gpu)
    return f"{basis};\npeaks at the boost clock, {clock:g} MHz" if clock else basis
