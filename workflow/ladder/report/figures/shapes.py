"""Shapes: at every shape the fastest variant against the reference, and the mean over all shapes."""

from __future__ import annotations

import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ladder.report.figures.data import FigureData
from ladder.report.figures.style import MUTED, PALETTE, REFERENCE, canvas, heading, legend_below
from ladder.results.statistics import (
    cell_of,
    estimate,
    fastest_by_size,
    geometric_mean,
    ok_rows,
    records,
    size_of,
)

ROW, LINE, GAP = 0.2, 0.115, 0.1
"""Inches from row to row, for each line of a name where it takes several, and between groups of rows."""

_NAME_WIDTH = 46
"""Characters of a name on the right; a longer one takes another line."""
_LOGARITHMIC = 3
"""From this ratio of the largest to the smallest speed on, the axis is logarithmic."""
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
_VERDICTS: dict[str, dict[str, Any]] = {
    "ahead": {"color": PALETTE[0], "marker": "o"},
    "behind": {"color": PALETTE[1], "marker": "s"},
    "interval holds 1": {"color": MUTED, "marker": "D"},
}
"""Verdicts by colour and mark: either tells them apart."""


def _verdict(row: dict[str, Any]) -> str | None:
    """A key of _VERDICTS; None where there is no result."""
    if "speedup" not in row:
        return None
    speed = estimate(row, "speedup")
    ahead, behind, undecided = _VERDICTS
    return ahead if speed.low > 1 else behind if speed.high < 1 else undecided


def _shape(row: dict[str, Any]) -> tuple[Any, ...]:
    """What one row of the figure stands for."""
    return row["dtype"], *size_of(row).values()


def _rows(data: FigureData, timed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By dtype, M, N and K: the fastest row of every shape, or the shape alone where it has no result."""
    found = {_shape(row): row for row in timed}
    dtypes = data.sweep.dtypes
    shapes = sorted(data.sweep.shapes(), key=lambda shape: (dtypes.index(shape[0]), *shape[1].values()))
    return [found.get((dtype, *size.values()), {"dtype": dtype, **size}) for dtype, size in shapes]


def _names(data: FigureData, rows: list[dict[str, Any]]) -> list[str]:
    """What was fastest at each row, as the table names it but for what is the kernel's default anyway."""
    labels = data.labels(data.timings)
    variants = {entry.variant.id: entry.variant for entry in data.sweep.entries}
    names = []
    for row in rows:
        if "variant" not in row or len(variants) == 1:
            names.append("")
            continue
        label = labels[row["variant"]].removesuffix(f" ({row['dtype']})")
        axes = variants[row["variant"]].kernel.parameters
        # The first parameter, such as the tile's width, always stands.
        first, *others = label.split(", ") if pd.isna(row["rung"]) else [label]
        kept = [
            part for part in others if part not in {f"{name}={axis.default}" for name, axis in axes.items()}
        ]
        names.append(textwrap.fill(", ".join([first, *kept]), _NAME_WIDTH))
    return names


def _places(groups: list[Any], names: list[str]) -> tuple[list[float], float]:
    """Middles of the rows and the height of all, in inches; groups that have rows to keep together stand apart."""
    gap = GAP if 2 * len(set(groups)) <= len(groups) else 0
    places, edge = [], 0.0
    for index, name in enumerate(names):
        edge += gap if index and groups[index] != groups[index - 1] else 0
        height = max(ROW, LINE * (name.count("\n") + 1) + 0.05)
        places.append(edge + height / 2)
        edge += height
    return places, edge


def _marks(axis: Axes, rows: list[dict[str, Any]], places: list[float]) -> None:
    """Speeds with their intervals, by verdict; words where there is no result."""
    for verdict, style in _VERDICTS.items():
        own = [(place, row) for place, row in zip(places, rows, strict=True) if _verdict(row) == verdict]
        if own:
            speeds = [estimate(row, "speedup") for _, row in own]
            below = [max(speed.value - speed.low, 0) for speed in speeds]
            above = [max(speed.high - speed.value, 0) for speed in speeds]
            style = style | {"ls": "", "ms": 5, "lw": 1.4, "capsize": 2.5, "label": f"{verdict}: {len(own)}"}
            values = [speed.value for speed in speeds]
            axis.errorbar(values, [place for place, _ in own], xerr=[below, above], zorder=3, **style)
    # On white, for the lines at 1 and at the mean cross the words.
    words: dict[str, Any] = {"color": MUTED, "style": "italic", "fontsize": 8.5}
    words |= {"ha": "center", "va": "center"}
    words |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5}}
    for place, row in zip(places, rows, strict=True):
        if _verdict(row) is None:
            axis.text(1, place, "no result", zorder=4, **words)


def _beside(
    axis: Axes, data: FigureData, timed: list[dict[str, Any]], rows: list[dict[str, Any]], places: list[float]
) -> list[float]:
    """Mark what the same variants reach with a clean L2, where that was measured; their speeds."""
    at = {_shape(row): place for row, place in zip(rows, places, strict=True)}
    shown = {cell_of(row) for row in timed}
    found = [
        (at[_shape(row)], row["speedup"])
        for row in records(ok_rows(data.timings, "cold"))
        if cell_of(row) in shown and row["regime"] != timed[0]["regime"]
    ]
    speeds = [speed for _, speed in found]
    if found:
        over = "" if len(found) == len(timed) else f" of {len(found)}"
        label = f"with a clean L2; geometric mean{over}: {geometric_mean(speeds):.3f}"
        style: dict[str, Any] = {"marker": "|", "ls": "", "ms": 8, "mew": 1.6, "color": "black"}
        axis.plot(speeds, [place for place, _ in found], label=label, zorder=2.5, **style)
    return speeds


def _scale(axis: Axes, low: float, high: float) -> None:
    """Ratios are read against 1, so the axis shows 1 and not 0."""
    if high < _LOGARITHMIC * low:
        margin = 0.05 * (high - low) + 0.005
        axis.set_xlim(low - margin, high + margin)
        return
    low, high = low / 1.1, high * 1.1
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    axis.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if low <= tick <= high]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _upright(axis: Axes, at: float, text: str, *, on_the_left: bool, style: str) -> None:
    """A line across all rows, named above them."""
    axis.axvline(at, color=REFERENCE, lw=1.4, ls=style, zorder=2)
    axis.annotate(
        text,
        (at, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if on_the_left else 3, 3),
        textcoords="offset points",
        ha="right" if on_the_left else "left",
        va="bottom",
        fontsize=9.5,
        color=REFERENCE,
    )


def draw(data: FigureData) -> Figure:
    """A row per shape with its mark and 95 % interval; on the right what was the fastest there."""
    # A reference against itself is the line at 1 already.
    measured = data.ok()
    measured = data.some(measured[measured["variant"] != measured["reference"]], "result at any shape")
    timed = fastest_by_size(measured)
    rows = _rows(data, timed)
    names = _names(data, rows)
    fields = data.sweep.problem.size_fields
    places, height = _places([(row["dtype"], row[fields[0]]) for row in rows], names)
    what = "the fastest variant" if any(names) else "speed"
    title = heading(data.sweep.title, f"{what} relative to {data.reference_name}")
    figure, (axis,) = canvas(data, 2.3 + height, title)
    _marks(axis, rows, places)
    estimates = [estimate(row, "speedup") for row in timed]
    beside = _beside(axis, data, timed, rows, places)
    ends = (
        min(beside + [speed.low for speed in estimates]),
        max(beside + [speed.high for speed in estimates]),
    )
    _scale(axis, min(1.0, ends[0]), max(1.0, ends[1]))
    mean = geometric_mean([speed.value for speed in estimates])
    _upright(axis, 1, "reference", on_the_left=mean >= 1, style="-")
    over = "" if len(timed) == len(rows) else f" of {len(timed)}"
    _upright(axis, mean, f"geometric mean{over}: {mean:.3f}", on_the_left=mean < 1, style="--")
    shapes = [" x ".join(str(row[name]) for name in fields) for row in rows]
    if len(data.sweep.dtypes) > 1:
        shapes = [f"{shape} ({row['dtype']})" for shape, row in zip(shapes, rows, strict=True)]
    axis.set_yticks(places, shapes, fontsize=8.5)
    axis.set_ylim(height, 0)
    axis.set_xlabel("speed relative to the reference, 95 % interval")
    axis.set_ylabel(" x ".join(name.upper() for name in fields))
    if any(names):
        right = axis.twinx()
        right.set_ylim(height, 0)
        right.set_yticks(places, names, fontsize=7.5)
        right.tick_params(axis="y", length=0)
        right.grid(visible=False)
        right.spines[["top", "right"]].set_visible(False)
    legend_below(figure, axis)
    return figure
