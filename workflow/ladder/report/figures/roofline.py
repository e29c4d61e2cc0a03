"""Roofline: speed over operational intensity, under the measured copy bandwidth and the arithmetic peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ladder.report.figures.data import FigureData, NoDataError
from ladder.report.figures.style import MARKERS, MUTED, PALETTE, canvas, heading, legend_below, some_ticks
from ladder.results.collect import dtype_peaks
from ladder.results.statistics import at_size, metric_table, params_of, records, size_of

DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
UNIT = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
MOST = 10


def _dram_bytes(
    data: FigureData, metrics: Mapping[Any, Mapping[str, float]], row: Mapping[str, Any]
) -> float | None:
    """Bytes the profiler saw move, where it looked at this cell."""
    values = metrics.get((data.sweep.name, row["variant"], tuple(size_of(row).items())), {})
    if not all(name in values for name in DRAM):
        return None
    units = data.metrics.set_index("metric")["unit"].dropna().to_dict()
    return sum(values[name] * UNIT.get(str(units.get(name, "byte")), 1.0) for name in DRAM)


def _roofs(axis: Axes, data: FigureData, dtypes: list[str], ends: tuple[float, float]) -> float:
    """Draw the roofs; returns the highest."""
    gpu = data.gpu
    copied = gpu.get("copy_gbytes_per_s")
    bandwidth = copied or gpu.get("memory_peak_gbytes_per_s")
    peaks = {dtype: peak for dtype, peak in dtype_peaks(data.source).items() if dtype in dtypes}
    highest = max(peaks.values(), default=math.inf)
    if bandwidth:
        # The slope ends where it meets the highest peak.
        x = np.array([ends[0], min(ends[1], highest * 1e3 / bandwidth)])
        text = f"{'measured copy' if copied else 'memory'} {bandwidth / 1e3:.2f} TB/s"
        axis.plot(x, x * bandwidth / 1e3, color=MUTED, lw=1.6, label=text)
    roofs: dict[tuple[float, str], list[str]] = {}
    for dtype, peak in peaks.items():
        roofs.setdefault((peak, "CUDA cores" if dtype == "fp32" else "tensor cores"), []).append(dtype)
    for (peak, core), alike in roofs.items():
        axis.hlines(peak, peak * 1e3 / bandwidth if bandwidth else ends[0], ends[1], color=MUTED, lw=1.6)
        axis.annotate(
            f"{', '.join(alike)} peak, {core}: {peak:.0f} TFLOP/s",
            (ends[1], peak),
            xytext=(-4, 4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=10,
            color=MUTED,
        )
    return highest if peaks else 0.0


def _start(data: FigureData, least: float) -> float:
    """Where the axis of intensities begins: left of every mark and of every ridge."""
    bandwidth = data.gpu.get("copy_gbytes_per_s") or data.gpu.get("memory_peak_gbytes_per_s")
    peaks = [peak for dtype, peak in dtype_peaks(data.source).items() if dtype in data.sweep.dtypes]
    ridges = [peak * 1e3 / bandwidth for peak in peaks] if bandwidth else []
    return float(min([least, *ridges])) / 2


def draw(data: FigureData) -> Figure:
    """One mark per variant at one size: filled by counted DRAM bytes, hollow by the least there could be."""
    rows = at_size(data.ok(), data.size)
    rows = data.some(rows[rows["tflops"].notna()], f"floating-point result at {data.size_text}")
    names = data.labels(rows)
    hidden = f" ({MOST} fastest of {len(rows)} variants)" if len(rows) > MOST else ""
    if len(rows) > MOST:
        rows = rows.sort_values("speedup", ascending=False).head(MOST)
    metrics = metric_table(data.metrics)
    points = []
    for row in records(rows):
        work = data.sweep.problem.work(size_of(row), row["dtype"], params_of(row["params"]))
        counted = _dram_bytes(data, metrics, row)
        if not (counted or work.bytes):
            continue
        points.append((row, work.operations / (counted or work.bytes), counted is not None))
    if not points:
        raise NoDataError("no operational intensity is known")
    figure, (axis,) = canvas(
        data,
        4.6 + 0.26 * math.ceil((len(points) + 1) / 3),
        heading(data.sweep.title, f"roofline, {data.size_text}{hidden}"),
    )
    intensities = [intensity for _, intensity, _ in points]
    ends = (_start(data, min(intensities)), max(intensities) * 20)
    highest = _roofs(axis, data, list(data.sweep.dtypes), ends)
    # Least bytes are alike for all variants: their marks would hide each other.
    aside = 1.0 if all(counted for _, _, counted in points) else 1.2
    for index, (row, intensity, counted) in enumerate(points):
        color = PALETTE[index % len(PALETTE)]
        spread = [
            [row["tflops"] * (1 - row["median_us"] / row["median_us_high"])],
            [row["tflops"] * (row["median_us"] / row["median_us_low"] - 1)],
        ]
        axis.errorbar(
            intensity * aside ** (index - (len(points) - 1) / 2),
            row["tflops"],
            yerr=np.maximum(spread, 0),
            marker=MARKERS[index % len(MARKERS)],
            ms=8,
            mew=1.8,
            color=color,
            mfc=color if counted else "white",
            ls="none",
            capsize=3,
            label=names[row["variant"]],
            zorder=4,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(*ends)
    axis.set_ylim(
        min(row["tflops"] for row, _, _ in points) / 1.5,
        max(highest, max(r["tflops"] for r, _, _ in points)) * 1.6,
    )
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_major_formatter(plain)
    axis.yaxis.set_major_formatter(plain)
    axis.yaxis.set_minor_formatter(FuncFormatter(some_ticks))
    kinds = {counted for _, _, counted in points}
    basis = {
        frozenset({True}): "DRAM bytes counted by the profiler",
        frozenset({False}): "hollow: each operand moved once, marks set side by side",
    }.get(frozenset(kinds), "filled: DRAM bytes counted; hollow: each operand moved once")
    clock = data.gpu.get("sm_clock_max_mhz")
    at = f"; peaks at the highest clock, {clock} MHz" if clock else ""
    axis.set_xlabel(f"operational intensity, FLOP/byte\n({basis}{at})")
    axis.set_ylabel("TFLOP/s")
    legend_below(figure, axis)
    return figure
