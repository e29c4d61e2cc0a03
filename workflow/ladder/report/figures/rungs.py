"""Ladder: speed of every rung relative to the reference, at one size."""

from __future__ import annotations

import textwrap
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ladder.report.figures.data import FigureData
from ladder.report.figures.style import MUTED, PALETTE, REFERENCE, canvas, heading, plain_number
from ladder.results.statistics import at_size, estimate, records

MOST = 24
BAR = 0.34
"""Height of a bar in inches; rungs stand as far apart as their names need."""


def _label(data: FigureData, variant: str, fallback: str) -> str:
    entry = next(entry for entry in data.sweep.entries if entry.variant.id == variant)
    return f"{fallback}\n{textwrap.fill(entry.technique, 40)}" if entry.technique else fallback


def _rows(data: FigureData) -> list[dict[str, Any]]:
    """One row per rung in the sweep's order, failed ones included; of many without names, the fastest."""
    every = at_size(data.timings, data.size)
    shown = every[every["regime"] == data.sweep.regimes[0]]
    data.some(shown[shown["status"] == "ok"], f"result at {data.size_text}")
    rows = records(shown)
    if len(rows) <= MOST or not shown["rung"].isna().any():
        return rows
    ranked = sorted((row for row in rows if row["status"] == "ok"), key=lambda row: -row["speedup"])
    return ranked[:MOST][::-1]


def draw(data: FigureData) -> Figure:
    """Horizontal bars with 95 % intervals; the reference is the line at 1."""
    rows = _rows(data)
    names = data.labels(pd.DataFrame(rows))
    reference = data.reference_name
    labels = [_label(data, row["variant"], names[row["variant"]]) for row in rows]
    heights = [0.2 + 0.16 * (label.count("\n") + 1) for label in labels]
    places = [sum(heights[:index]) + height / 2 for index, height in enumerate(heights)]
    figure, (axis,) = canvas(
        data,
        1.7 + sum(heights),
        heading(data.sweep.title, f"speed relative to {reference}, {data.size_text}"),
    )
    dtypes = list(data.sweep.dtypes)
    reach = max([1.0, *(estimate(row, "speedup").high for row in rows if row["status"] == "ok")])
    for place, row in zip(places, rows, strict=True):
        if row["status"] != "ok":
            axis.text(
                0.01 * reach, place, f"no result: {row['status']}", va="center", color=MUTED, style="italic"
            )
            continue
        speed = estimate(row, "speedup")
        color = PALETTE[dtypes.index(row["dtype"]) % len(PALETTE)]
        axis.barh(place, speed.value, height=BAR, color=color, zorder=2)
        spread = [[max(speed.value - speed.low, 0)], [max(speed.high - speed.value, 0)]]
        axis.errorbar(speed.value, place, xerr=spread, color="black", capsize=3, lw=1.2, zorder=4)
        rate = f"  {plain_number(row['tflops'])} TFLOP/s" if not pd.isna(row["tflops"]) else ""
        # A long bar has room for its numbers; beside it they would run into the reference line.
        inside = speed.value > 0.45 * reach
        axis.text(
            speed.low - 0.015 * reach if inside else speed.high + 0.012 * reach,
            place,
            f"{speed.value:#.3g}x{rate}",
            va="center",
            ha="right" if inside else "left",
            color="white" if inside else "black",
            fontsize=10,
            zorder=5,
        )
    axis.axvline(1, color=REFERENCE, lw=1.6, ls="--", zorder=3)
    axis.annotate(
        "reference",
        (1, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=10,
        color=REFERENCE,
    )
    axis.set_yticks(places, labels, fontsize=9.5, multialignment="right")
    axis.set_ylim(sum(heights), -0.1)
    axis.set_xlim(0, reach * 1.22)
    axis.set_xlabel("speed relative to the reference, 95 % interval")
    axis.grid(axis="y", visible=False)
    return figure
