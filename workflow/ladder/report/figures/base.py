"""What every figure is made with: its data, and the one look of all. PNG of 1152 pixels width, legible at 830."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from scipy.optimize import isotonic_regression

from ladder.report.figures.style import (
    AHEAD,
    BEHIND,
    DPI,
    MUTED,
    REFERENCE,
    TIE,
    WIDTH,
    apply,
)
from ladder.report.markdown import cut
from ladder.report.titles import message as title_of
from ladder.results.statistics import estimate, predicted
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import FASTER, SLOWER, TIED

_TITLE_WIDTH, _ABOUT_WIDTH = 70, 112  # characters of a line
_NAME_WIDTH = 46  # characters of a line of a name beside the axes
_LONGEST = 160  # characters of a title that a figure has room for
_LEGEND_WIDTH = 116  # characters of a legend that fit side by side, each line or mark counted as eight
_FACTORS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))
_FEW = 3  # ticks of an axis of factors
VERDICTS: Mapping[str, str] = {FASTER: AHEAD, SLOWER: BEHIND, TIED: TIE}
"""Verdicts of a range of speeds about 1, with their colours."""


class End(NamedTuple):
    """The right end of a line, in data coordinates, with its name."""

    x: float
    y: float
    name: str
    color: str


def canvas(
    data: FigureData,
    height: float,
    what: str = "",
    columns: int = 1,
    rows: int = 1,
    title: str | None = None,
    **shape: Any,
) -> tuple[Figure, list[Axes]]:
    """A figure with its message as its title, below it what it shows of which sweep and device, and its axes."""
    apply()
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **shape)
    title = textwrap.fill(
        cut(title_of(data) if title is None else title, _LONGEST), _TITLE_WIDTH
    )
    shown = [cut(data.sweep.title, _LONGEST), what, _device(data)]
    about = textwrap.fill(" · ".join(filter(None, shown)), _ABOUT_WIDTH)
    # Inches that the two headings take, whatever the height.
    title_inches = 0.11 + 0.24 * (title.count("\n") + 1)
    about_inches = 0.01 + 0.18 * (about.count("\n") + 1)
    top = 1 - (title_inches + about_inches) / height
    figure.set_layout_engine(
        "constrained", rect=(0.0, 0.0, 1.0, top), w_pad=0.09, h_pad=0.06
    )
    figure.text(
        0.012, 1 - 0.09 / height, title, fontsize=13, fontweight="bold", va="top"
    )
    figure.text(
        0.012, 1 - title_inches / height, about, fontsize=9.5, color=MUTED, va="top"
    )
    return figure, list(axes.flat)


def _device(data: FigureData) -> str:
    """Name of the device and days of the measurements, without places to break a line at."""
    device = cut(
        str(data.gpu.get("name") or data.source.get("device") or "unknown device"),
        _LONGEST,
    )
    published = (
        "published run, " if data.environment.get("timings_from") == "published" else ""
    )
    if data.days:
        device += f", {published}{data.days}"
    return device.replace(" ", "\u00a0")


def message(data: FigureData, reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure, (axis,) = canvas(data, 2.4, title=data.sweep.title)
    axis.set_axis_off()
    text = textwrap.fill(
        cut(f"No {data.figure.kind} figure: {reason}.", 3 * _LONGEST), 80
    )
    note(axis, text, (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize=12)
    return figure


def note(
    axis: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float] = (0, 0),
    **look: Any,
) -> None:
    """Words at a place of the axes, moved by `offset` points; small and muted unless `look` says otherwise."""
    usual: dict[str, Any] = {
        "fontsize": 9,
        "color": MUTED,
        "va": "center",
        "textcoords": "offset points",
    }
    axis.annotate(text, at, offset, **(usual | look))


def interval(
    axis: Axes, at: float, row: Mapping[str, Any], color: str, **mark: Any
) -> None:
    """A speed-up: its mark, thick what was measured (95 %), thin what another GPU of the model would read."""
    measured, elsewhere = estimate(row, "speedup"), predicted(row)
    axis.hlines(at, measured.low, measured.high, color=color, lw=3.2, zorder=3.5)
    if elsewhere.known:
        axis.hlines(at, elsewhere.low, elsewhere.high, color=color, lw=1.0, zorder=3)
    look: dict[str, Any] = {"marker": "o", "ms": 5} | mark
    axis.plot(measured.value, at, ls="", color=color, zorder=4, **look)


RANGES = "thick: measured, 95 %; thin: what another GPU would read"
"""What the lines of `interval` are, for a label."""


def at_reference(axis: Axes) -> None:
    """A line where the speed is the reference's."""
    axis.axvline(1, color=REFERENCE, lw=1.2, ls="--", zorder=2)


def factor_axis(
    axis: Axes, low: float, high: float, upright: bool = False, most: int = 8
) -> None:
    """A logarithmic axis of factors from `low` to `high` and a little beyond, with `most` ticks that people read."""
    room = (high / low) ** 0.04
    low, high = low / room, high * room
    ticks = _ticks(low, high, most)
    labels = [f"{tick:.4g}" for tick in ticks]
    if len({*labels}) < len(ticks):  # between ends that are nearly alike
        labels = [f"{tick:.9g}" for tick in ticks]
    letter = "y" if upright else "x"
    axis.set(**{f"{letter}scale": "log"})
    scale = axis.yaxis if upright else axis.xaxis
    scale.set_minor_locator(NullLocator())
    scale.set_ticks(ticks, labels)
    axis.set(**{f"{letter}lim": (low, high)})


def _ticks(low: float, high: float, most: int) -> list[float]:
    """The densest round factors that are at most `most`; of a short axis evenly spaced numbers."""
    ticks = list[float]()
    for factors in _FACTORS:
        every = [factor * 10.0**power for power in range(-4, 4) for factor in factors]
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) <= most:
            break
    if len(ticks) < _FEW or high < 2 * low:
        spaced = MaxNLocator(min(most, 6), steps=[1, 2, 5, 10]).tick_values(low, high)
        ticks = [float(tick) for tick in spaced if low <= tick <= high]
    return ticks


def broken(name: str) -> str:
    """A name in lines that leave room for the axes beside it."""
    return textwrap.fill(name, _NAME_WIDTH)


def name_rows(axis: Axes, labels: Sequence[str], size: float) -> None:
    """Names of rows from the top on."""
    axis.set_yticks(range(len(labels)), labels, fontsize=size)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)


def name_ends(axis: Axes, inches: float, ends: Sequence[End]) -> None:
    """Name lines at their right ends; `inches` is the height of the axes.

    Limits and scales are set before. Names that would touch stand apart, with a thin line to their own end.
    """
    to_axes = axis.transData + axis.transAxes.inverted()
    placed = [(*to_axes.transform((end.x, end.y)), end) for end in ends]
    placed.sort(key=lambda place: place[1])
    levels = np.clip([level for _, level, _ in placed], 0, 1)
    heights = np.array(
        [0.156 * (end.name.count("\n") + 1) / inches for *_, end in placed]
    )
    # The places nearest to the ends at which each name is above the one before, and within the axes.
    above = np.cumsum([0, *(heights[:-1] + heights[1:]) / 2])
    free = isotonic_regression(levels - above).x
    places = np.clip(free, 0, max(1 - above[-1], 0)) + above
    for place, level, (across, _, end) in zip(places, levels, placed, strict=True):
        line = {
            "color": end.color,
            "lw": 0.6,
            "alpha": 0.7,
            "transform": axis.transAxes,
        }
        bend = level if across > 0.9 else place
        axis.plot(
            [across, 1.01, 1.03], [level, bend, place], clip_on=False, zorder=1, **line
        )
        note(axis, end.name, (1.035, place), xycoords="axes fraction", color=end.color)


def legend_below(figure: Figure, axes: Sequence[Axes], **look: Any) -> Figure:
    """The figure with each line of any of the axes once in a legend below them, where it hides no data."""
    handles = dict[str, Any]()
    for axis in axes:
        handles |= {
            label: handle
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
    longest = max(len(line) for label in handles for line in label.splitlines())
    columns = max(min(_LEGEND_WIDTH // (longest + 8), 4, len(handles)), 1)
    look |= {"ncols": columns, "frameon": False}
    figure.legend([*handles.values()], [*handles], loc="outside lower center", **look)
    return figure
