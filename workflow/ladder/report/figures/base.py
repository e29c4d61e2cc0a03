"""What every figure is made with: its headings, intervals, axes of factors and legend."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from pandas import DataFrame

from ladder.report.figures.style import DPI, MUTED, WIDTH, apply
from ladder.report.markdown import cut
from ladder.report.titles import title_of
from ladder.results.sweep_data import FigureData

_TITLE_WIDTH, _ABOUT_WIDTH = 70, 112  # characters of a line
_LONGEST = 480  # characters of a reason
_LEGEND_WIDTH = 110  # characters of a legend that fit side by side
_MARK_WIDTH = 8  # characters that a mark in a legend is as wide as
_SHORT, _LONG = 4, 150  # ratios of the ends of an axis
RANGES = "thick: measured, 95 %; thin: what another GPU would read"
"""What the lines of `intervals` are, for a label."""


def canvas(
    data: FigureData, height: float, about: str = "", **subplots: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with its message as its title, below it what it shows of which sweep and device, and its axes."""
    apply()
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.06)
    title = textwrap.fill(title_of(data), _TITLE_WIDTH)
    sweep = data.sweep.title if data.title else ""
    parts = [sweep, about, _device(data)]
    about = textwrap.fill(" · ".join(filter(None, parts)), _ABOUT_WIDTH)
    figure.suptitle(
        title,
        x=0.012,
        ha="left",
        fontsize=13,
        fontweight="bold",
    )
    body = figure.add_subfigure(figure.add_gridspec()[0])
    body.suptitle(
        about,
        x=0.012,
        ha="left",
        fontsize=9.5,
        color=MUTED,
    )
    axes = body.subplots(squeeze=False, **subplots)
    return figure, list(axes.flat)


def _device(data: FigureData) -> str:
    """Name of the device and days of the measurements, without places to break a line at."""
    name = data.gpu.get("name") or data.source.get("device") or "unknown device"
    published = data.environment.get("timings_from") == "published"
    parts = [name, "published run" if published else "", data.days]
    return ", ".join(filter(None, parts)).replace(" ", "\u00a0")


def message(data: FigureData, reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure, (axis,) = canvas(replace(data, title=""), 2.4)
    axis.set_axis_off()
    text = cut(f"No {data.figure.kind} figure: {reason}.", _LONGEST)
    axis.text(0.5, 0.5, textwrap.fill(text, 80), ha="center", va="center")
    return figure


def intervals(
    axis: Axes, rows: DataFrame, color: str, marker: str = "o", label: str = ""
) -> None:
    """Speed-ups: marks, thick what was measured (95 %), thin what another GPU of the model would read.

    Columns: place on the axis; speedup, its ends and the predicted ones.
    """
    axis.plot(
        rows["speedup"],
        rows["place"],
        marker,
        color=color,
        zorder=4,
        label=label,
    )
    for column, width in (("speedup", 3.2), ("predicted", 1.0)):
        axis.hlines(
            rows["place"],
            rows[f"{column}_low"],
            rows[f"{column}_high"],
            color=color,
            lw=width,
            zorder=3,
        )


def factor_ticks(axis: Axis) -> None:
    """Ticks of a logarithmic axis: 1, 2, 5; evenly spaced where it is short; powers of ten where it is long."""
    low, high = axis.get_view_interval()
    if high < _SHORT * low:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    else:
        factors = (1.0, 2.0, 5.0) if high < _LONG * low else (1.0,)
        axis.set_major_locator(LogLocator(subs=factors))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def legend_below(figure: Figure, axes: Sequence[Axes], title: str = "") -> Figure:
    """The figure with each line of any of the axes once in a legend below them, where it hides no data."""
    handles = dict[str, Artist]()
    for axis in axes:
        drawn, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    longest = max(len(label) for label in handles)
    columns = _LEGEND_WIDTH // (longest + _MARK_WIDTH)
    figure.legend(
        [*handles.values()],
        [*handles],
        loc="outside lower center",
        ncols=min(max(columns, 1), len(handles)),
        title=title,
    )
    return figure
