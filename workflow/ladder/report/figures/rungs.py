"""Ladder: speed of every rung relative to the reference, at one size."""

import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures.base import MUTED, PALETTE, REFERENCE, FigureData, above, canvas
from ladder.results.statistics import Estimate, at_size, estimate, records

MOST = 24
_BAR = 0.34  # height of a bar in inches; rungs stand as far apart as their names need


def _rows(data: FigureData) -> pd.DataFrame:
    """One row per rung in the sweep's order, failed ones included; of many without names, the fastest."""
    every = at_size(data.timings, data.size)
    shown = every[every["regime"] == data.regime]
    done = data.some(shown[shown["status"] == "ok"])
    if len(shown) <= MOST or not shown["rung"].isna().any():
        return shown
    return done.sort_values("speedup", ascending=False, kind="stable").head(MOST)[::-1]


def _bar(axis: Axes, place: float, speed: Estimate, tflops: float, color: str, reach: float) -> None:
    axis.barh(place, speed.value, height=_BAR, color=color, zorder=2)
    spread = [[max(speed.value - speed.low, 0)], [max(speed.high - speed.value, 0)]]
    axis.errorbar(speed.value, place, xerr=spread, color="black", capsize=3, lw=1.2, zorder=4)
    digits = 0 if tflops >= 100 else 1 if tflops >= 10 else 2
    rate = "" if pd.isna(tflops) else f"  {tflops:.{digits}f} TFLOP/s"
    at, side, ink = speed.high + 0.012 * reach, "left", "black"
    # A long bar has room for its numbers; beside it they would run into the reference line.
    if speed.value > 0.45 * reach:
        at, side, ink = speed.low - 0.015 * reach, "right", "white"
    numbers = f"{speed.value:#.3g}x{rate}"
    axis.text(at, place, numbers, va="center", ha=side, color=ink, fontsize=10, zorder=5)


def draw(data: FigureData) -> Figure:
    """Horizontal bars with 95 % intervals; the reference is the line at 1."""
    shown = _rows(data)
    names, rows = data.labels(shown), records(shown)
    techniques = {entry.variant.id: textwrap.fill(entry.technique, 40) for entry in data.sweep.entries}
    labels = [f"{names[variant]}\n{techniques[variant]}".strip() for variant in shown["variant"]]
    heights = [0.2 + 0.16 * (label.count("\n") + 1) for label in labels]
    places = [sum(heights[:index]) + height / 2 for index, height in enumerate(heights)]
    what = f"speed relative to {data.reference_name}, {data.size_text}"
    figure, (axis,) = canvas(data, 1.7 + sum(heights), what)
    speeds = [estimate(row, "speedup") for row in rows]
    reach = max([1.0, *(speed.high for speed in speeds if speed.known)])
    for place, row, speed in zip(places, rows, speeds, strict=True):
        if row["status"] == "ok":
            color = PALETTE[data.sweep.dtypes.index(row["dtype"]) % len(PALETTE)]
            _bar(axis, place, speed, row["tflops"], color, reach)
        else:
            lack = f"no result: {row['status']}"
            axis.text(0.01 * reach, place, lack, va="center", color=MUTED, style="italic")
    axis.axvline(1, color=REFERENCE, lw=1.6, ls="--", zorder=3)
    above(axis, 1, "reference", xytext=(0, 2), ha="center", fontsize=10)
    axis.set_yticks(places, labels, fontsize=9.5, multialignment="right")
    axis.set(ylim=(sum(heights), -0.1), xlim=(0, reach * 1.22))
    axis.set_xlabel("speed relative to the reference, 95 % interval")
    axis.grid(axis="y", visible=False)
    return figure
