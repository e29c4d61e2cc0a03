"""Ladder: speed of every rung relative to the reference, at one size."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures.base import MUTED, PALETTE, REFERENCE, above, canvas, error_bars
from ladder.report.sweep_data import FigureData
from ladder.results.statistics import at_size, estimate, records

MOST = 24
_BAR = 0.34  # height of a bar in inches; rungs stand as far apart as their names need


def _numbers(axis: Axes, row: Mapping[str, Any], reach: float) -> None:
    """Speed and rate beside a bar, or in it where it is long: beside it they would run into the reference line."""
    speed, tflops = estimate(row, "speedup"), row["tflops"]
    digits = 0 if tflops >= 100 else 1 if tflops >= 10 else 2
    rate = "" if pd.isna(tflops) else f"  {tflops:.{digits}f} TFLOP/s"
    at, side, ink = speed.high + 0.012 * reach, "left", "black"
    if speed.value > 0.45 * reach:
        at, side, ink = speed.low - 0.015 * reach, "right", "white"
    look: dict[str, Any] = {"va": "center", "ha": side, "color": ink, "fontsize": 10, "zorder": 5}
    axis.text(at, row["place"], f"{speed.value:#.3g}x{rate}", **look)


def draw(data: FigureData) -> Figure:
    """Horizontal bars with 95 % intervals; the reference is the line at 1."""
    shown = at_size(data.timings[data.timings["regime"] == data.regime], data.size)
    done = data.some(data.here)
    # Every rung, failed ones included; of many without names the fastest.
    if len(shown) > MOST and shown["rung"].isna().any():
        shown = done.sort_values("speedup", ascending=False, kind="stable").head(MOST)[::-1]
    techniques = {entry.variant.id: textwrap.fill(entry.technique, 40) for entry in data.sweep.entries}
    labels = [f"{data.names[variant]}\n{techniques[variant]}".strip() for variant in shown["variant"]]
    heights = np.array([0.2 + 0.16 * (label.count("\n") + 1) for label in labels])
    rows = shown.assign(place=heights.cumsum() - heights / 2)
    height = heights.sum()
    what = f"speed relative to {data.reference_name}, {data.size_text}"
    figure, (axis,) = canvas(data, 1.7 + height, what)
    done = rows[rows["status"] == "ok"]
    reach = max(1.0, done["speedup_high"].max())
    colors = [PALETTE[data.sweep.dtypes.index(dtype) % len(PALETTE)] for dtype in done["dtype"]]
    axis.barh(done["place"], done["speedup"], height=_BAR, color=colors, zorder=2)
    look: dict[str, Any] = {"color": "black", "ls": "none", "capsize": 3, "lw": 1.2, "zorder": 4}
    axis.errorbar(done["speedup"], done["place"], xerr=error_bars(done, "speedup"), **look)
    for row in records(rows):
        if row["status"] == "ok":
            _numbers(axis, row, reach)
        else:
            why = f"no result: {row['status']}"
            axis.text(0.01 * reach, row["place"], why, va="center", color=MUTED, style="italic")
    axis.axvline(1, color=REFERENCE, lw=1.6, ls="--", zorder=3)
    above(axis, 1, "reference", xytext=(0, 2), ha="center", fontsize=10)
    axis.set_yticks(rows["place"], labels, fontsize=9.5, multialignment="right")
    axis.set(ylim=(height, -0.1), xlim=(0, reach * 1.22))
    axis.set_xlabel("speed relative to the reference, 95 % interval")
    axis.grid(axis="y", visible=False)
    return figure
