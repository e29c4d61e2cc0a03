"""Roofline: speed over operational intensity, under the measured copy bandwidth and the arithmetic peaks."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ladder.report.figures import base, style
from ladder.report.ladder_steps import path_to_fastest
from ladder.report.markdown import number
from ladder.report.titles import rival
from ladder.results import statistics as stats
from ladder.results.collect import dtype_peaks
from ladder.results.counters import DRAM_READ, DRAM_WRITE
from ladder.results.environment import boost_clock_mhz
from ladder.results.sweep_data import FigureData

MOST = 12
"""Variants of a sweep that is no ladder."""


def draw(data: FigureData) -> Figure:
    """One mark per variant at one size: the rungs of a ladder's path, else the fastest."""
    import seaborn  # takes a second to import

    rows = data.here
    rows = data.some(
        rows[rows["tflops"].notna()],
        f"floating-point result at {data.size_text}",
    )
    shown = _shown(data, rows)
    marks = _marks(data, shown)
    about = data.size_text
    if len(shown) < len(rows):
        about += f", {len(shown)} of {len(rows)} variants"
    figure, (axis,) = base.canvas(data, 5.0, about)
    axis.set(xscale="log", yscale="log")
    _draw_roofs(axis, data, marks)
    library = shown["tflops"] * shown["median_us"] / shown["reference_median_us"]
    rate = library.median()
    axis.axhline(
        rate,
        color=style.REFERENCE,
        ls="--",
        label=f"{rival(data)}, {number(rate, 3)}",
    )
    axis.plot(
        marks["intensity"],
        marks["tflops"],
        color=style.TIE,
    )
    seaborn.scatterplot(
        marks,
        x="intensity",
        y="tflops",
        hue="label",
        palette="viridis",
        s=60,
        zorder=4,
        ax=axis,
    )
    axis.set_ylim(bottom=marks["tflops"].min() / 1.5)
    base.factor_ticks(axis.xaxis)
    base.factor_ticks(axis.yaxis)
    basis = _basis(data, marks)
    axis.set_xlabel(f"operational intensity, FLOP/byte\n({basis})")
    axis.set_ylabel("TFLOP/s")
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _shown(data: FigureData, rows: DataFrame) -> DataFrame:
    if not data.has_rungs:
        return rows.nlargest(MOST, "speedup")
    return rows[rows["variant"].isin(path_to_fastest(data))]


def _marks(data: FigureData, rows: DataFrame) -> DataFrame:
    """Rows with their `label` and `intensity`, and whether its bytes were `counted` or are the fewest possible."""
    moved = stats.at_size(data.metrics, data.size)
    moved = moved[moved["metric"].isin([DRAM_READ, DRAM_WRITE])]
    counted = moved.groupby("variant")["value"].sum(min_count=2)
    bytes_moved = rows["variant"].map(counted)
    fewest = rows["gbytes_per_s"] * rows["median_us"] * 1e3
    operations = rows["tflops"] * rows["median_us"] * 1e6
    rates = [number(rate, 3) for rate in rows["tflops"]]
    rows = rows.assign(
        label=rows["variant"].map(data.names) + ", " + rates,
        counted=bytes_moved.notna(),
        intensity=operations / bytes_moved.fillna(fewest),
    )
    return data.some(rows.dropna(subset="intensity"), "operational intensity")


def _draw_roofs(axis: Axes, data: FigureData, marks: DataFrame) -> None:
    """A roof for each peak, from left of every mark and ridge on; without a known bandwidth it is flat."""
    copied = data.gpu.get("copy_gbytes_per_s")
    bandwidth = copied or data.gpu.get("memory_peak_gbytes_per_s") or math.inf
    bandwidth /= 1e3
    source = "measured copy" if copied else "memory"
    peaks = pd.Series(dtype_peaks(data.gpu)).filter(data.sweep.dtypes)
    ends = [*marks["intensity"]]
    if bandwidth < math.inf:
        ends += [*peaks / bandwidth]
    intensities = np.geomspace(min(ends) / 2, max(ends) * 4)
    for dtype, peak in peaks.items():
        core = "CUDA cores" if dtype == "fp32" else "tensor cores"
        axis.plot(
            intensities,
            np.minimum(intensities * bandwidth, peak),
            color=style.MUTED,
            label=(
                f"{dtype} peak, {core}: {peak:.0f} TFLOP/s\n"
                f"{source}: {bandwidth:.2f} TB/s"
            ),
        )


def _basis(data: FigureData, marks: DataFrame) -> str:
    """Which bytes the intensity counts, and at which clock the peaks are."""
    basis = "DRAM bytes counted by the profiler"
    if not marks["counted"].all():
        basis = "each operand moved once, unless bytes are counted"
    clock = boost_clock_mhz(data.gpu)
    return f"{basis};\npeaks at the boost clock, {clock:g} MHz" if clock else basis
