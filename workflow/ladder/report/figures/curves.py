"""Curves: speed relative to the reference over the size or over a parameter, at most six lines a panel.

Where variants have different baselines the rate is drawn instead, for ratios over two baselines do not compare. What is
bound by memory and held against a copy is drawn as the share of the memory's peak rate.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.model.cell import count_label
from ladder.model.problem import COPY
from ladder.report.figures import base, style
from ladder.report.figures.lines import (
    Lines,
    facets,
    few_lines,
    over_parameter,
    over_size,
    spilled,
    with_values,
)
from ladder.report.markdown import number
from ladder.results import statistics as stats
from ladder.results.statistics import rate_column, records
from ladder.results.sweep_data import FigureData

_OCTAVES = (
    16  # from this ratio of the largest to the smallest x on, the axis counts octaves
)
_SHOWN = 0.85  # of the slowest of the fastest at any size: what is slower still leaves the axis
_NEAR = 1.25  # factor within which the axis reaches to 1
_TICKS = 12  # values on an axis
BELOW = "below"
"""Id of the words at what has left an axis below."""
_WORDS = 26  # characters of a line of a name at the end of a curve
_UNITS = {"memory_fraction": "share of the\nmemory's peak rate"}


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(set(values), key=lambda value: (isinstance(value, str), value))


def _places(values: Sequence[Any]) -> tuple[str, dict[Any, float]]:
    """The scale of an axis of these values, and where each stands on it: its true place where that is legible."""
    numbers = [float(value) for value in values if not isinstance(value, str)]
    if len(numbers) == len(values):
        true = dict(zip(values, numbers, strict=True))
        if min(numbers) > 0 and max(numbers) >= _OCTAVES * min(numbers):
            return "log", true
        if max(numbers) - min(numbers) <= 3 * len(numbers):
            return "linear", true
    return "words", {value: float(place) for place, value in enumerate(values)}


def _draw_lines(
    axis: Axes, rows: pd.DataFrame, colors: dict[str, str], joined: bool
) -> None:
    for line, color in colors.items():
        cells = rows[rows["line"] == line]
        if cells.empty:
            continue
        place = cells["place"]
        axis.plot(
            place,
            cells["value"],
            color=color,
            lw=1.6 if joined else 0.9,
            zorder=3,
            label=line,
        )
        elsewhere = cells["predicted_low"], cells["predicted_high"]
        axis.vlines(place, *elsewhere, color=color, lw=0.8, alpha=0.6, zorder=2.5)
        axis.vlines(
            place,
            cells["low"],
            cells["high"],
            color=color,
            lw=3.0,
            alpha=0.75,
            zorder=3,
        )
        for spills, marks in cells.groupby("spills"):
            face = "white" if spills else color
            axis.plot(
                marks["place"],
                marks["value"],
                "o",
                ms=4.5,
                color=color,
                mfc=face,
                zorder=4,
            )


def _set_limits(
    axis: Axes, rows: pd.DataFrame, against_one: bool, shown: float
) -> None:
    """The axis shows where lines differ; what is far slower than the fastest leaves it below."""
    best = rows.groupby("x")["value"].max().min()
    measured = rows[["value", "low", "high", "predicted_high"]].min().min()
    highest = rows[["value", "low", "high", "predicted_high"]].max().max()
    low = max(min(measured, rows["predicted_low"].min()), shown * best)
    if (
        against_one and best > _NEAR
    ):  # all the news is above the reference: it is shown from there on
        low = measured
    ends = [low, highest]
    if against_one and low / _NEAR < 1 < highest * _NEAR:
        ends.append(1.0)
    base.factor_axis(axis, min(ends), max(ends), upright=True)


def _mark_below(axis: Axes, rows: pd.DataFrame, colors: dict[str, str]) -> None:
    """Marks at the edge for what has left the axis below, with its value, or with the range of several."""
    low = axis.get_ylim()[0]
    for _, gone in rows[rows["value"] < low].groupby("x"):
        place = float(gone["place"].iloc[0])
        color = colors[gone["line"].iloc[0]] if len(gone) == 1 else style.MUTED
        values = dict.fromkeys(
            number(value, 2) for value in (gone["value"].min(), gone["value"].max())
        )
        at_right = place == rows["place"].max()
        axis.plot(place, low, "v", ms=6, color=color, clip_on=False, zorder=5)
        look: dict[str, Any] = {
            "fontsize": 8.5,
            "va": "bottom",
            "zorder": 5,
            "gid": BELOW,
        }
        look["bbox"] = {
            "facecolor": "white",
            "edgecolor": "none",
            "pad": 0.3,
            "alpha": 0.8,
        }
        look["ha"] = "right" if at_right else "left"
        base.note(
            axis,
            " to ".join(values),
            (place, low),
            (-7 if at_right else 7, 3),
            color=color,
            **look,
        )


def _wrapped(name: str) -> str:
    return "\n".join(textwrap.wrap(name, _WORDS, break_long_words=False)[:2])


def _column(cells: pd.DataFrame, by_parameter: bool) -> str:
    """What is drawn: the speed-up, or where it does not compare another column."""
    if by_parameter:
        return "speedup"
    if {*cells["reference"]} == {COPY} and cells["memory_fraction"].notna().all():
        return "memory_fraction"
    rate = rate_column(cells)
    return rate[0] if rate and not stats.comparable(cells) else "speedup"


def draw(data: FigureData) -> Figure:
    """A panel per dtype over the size; over a parameter one per size, dtype or value of `hue`."""
    stencil = data.figure.kind == "stencil"
    name = data.figure.x or ("radius" if stencil else None)
    lines = facets(data, over_parameter(data, name)) if name else over_size(data)
    column = _column(lines.cells, bool(name))
    against_one = column == "speedup"
    cells = with_values(lines.cells, column)
    cells["spills"] = spilled(data, cells) if name else False
    drawn, names, what = few_lines(cells, len(style.PALETTE), spread=not against_one)
    colors = dict(zip(names, style.PALETTE, strict=False))
    values = _ordered(drawn["x"])
    scale, places = (
        _places(values) if name else ("log", {value: value for value in values})
    )
    drawn = drawn.assign(place=drawn["x"].map(places)).sort_values(
        "place", kind="stable"
    )
    if stencil:
        what = f"{what}, {data.size_text}".strip(", ")

    panels = list(dict.fromkeys(cells["panel"]))
    columns, rows = _grid(len(panels), bool(name))
    rate, unit_of_rate = "", ""
    if columns == 1 and not name:
        rate, unit_of_rate = rate_column(cells) or ("", "")
    tall = 3.4 if rows == 1 else 2.5
    legend_inches = 0.0 if columns == 1 else 0.25 * math.ceil(len(names) / 2)
    height = 1.3 + tall * rows + legend_inches
    about = f"{what}{lines.note}".strip("; ")
    figure, axes = base.canvas(data, height, about, columns, rows, sharey=bool(name))
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    axes = axes[: len(panels)]
    for axis, panel in zip(axes, panels, strict=True):
        of_panel = drawn[drawn["panel"] == panel]
        _draw_lines(axis, of_panel, colors, joined=not name)
        if against_one:
            axis.axhline(1, color=style.REFERENCE, ls="--", lw=1.3, zorder=2)
        if scale == "log":
            axis.set_xscale("log", base=2)
        shown = _SHOWN if against_one and not name else 0.0
        _set_limits(axis, drawn if name else of_panel, against_one, shown)
        _mark_below(axis, of_panel, colors)
        if name:
            _name_values(axis, places, scale, columns)
        else:
            _name_sizes(axis, cells[cells["panel"] == panel], values, columns, rate)
        axis.set_title(panel if len(panels) > 1 else "", fontsize=10.5)
    if not name:  # names stand at the ends of lines, which may lie at sizes that a panel does not have
        ends = [end for axis in axes for end in axis.get_xlim()]
        for axis in axes:
            axis.set_xlim(min(ends), max(ends))
    unit = _UNITS.get(column, "share of the speed\nof the fastest")
    for axis in axes[::columns]:
        axis.set_ylabel(
            f"speed relative to\n{_wrapped(lines.reference)}" if against_one else unit
        )

    if drawn["spills"].any():
        look: dict[str, Any] = {"marker": "o", "color": style.MUTED, "mfc": "white"}
        axes[0].plot(
            [], [], ls="", label="hollow: registers spill to local memory", **look
        )
    told_apart = names != [""]
    if drawn["spills"].any() or (columns > 1 and told_apart):
        return base.legend_below(
            figure, axes, title=lines.about, title_fontsize=10.5, fontsize=9
        )
    below = f"\nbelow: {unit_of_rate} of the fastest" if rate else ""
    figure.supxlabel(lines.about + below, fontsize=10.5)
    if told_apart:
        for axis, panel in zip(axes, panels, strict=True):
            ends_of_lines = _ends(
                axis, drawn[drawn["panel"] == panel], colors, lines, against_one
            )
            base.name_ends(axis, tall - 0.7, ends_of_lines)
    return figure


def _grid(panels: int, of_parameter: bool) -> tuple[int, int]:
    """Columns and rows of panels: up to three over the size stand below one another, others side by side."""
    columns = min(panels, 4)
    if not of_parameter and panels <= 4:
        columns = 2 if panels == 4 else 1
    return columns, math.ceil(panels / columns)


def _name_sizes(
    axis: Axes, cells: pd.DataFrame, sizes: Sequence[float], columns: int, rate: str
) -> None:
    """Sizes, and below each the rate of the fastest, a column, where one is given."""
    shown = sizes[:: math.ceil(len(sizes) * columns / _TICKS)]
    labels = [count_label(int(size)) for size in shown]
    if rate:
        fastest = cells.loc[cells.groupby("x")["value"].idxmax()].set_index("x")[rate]
        for place, size in enumerate(shown):
            if size in fastest.index:
                labels[place] += f"\n{number(fastest[size], 3)}"
    axis.set_xticks(shown, labels)
    axis.minorticks_off()


def _name_values(
    axis: Axes, places: dict[Any, float], scale: str, columns: int
) -> None:
    most = _TICKS if columns == 1 else 16 // columns + 1
    shown = [*places]
    if scale == "log" and len(shown) > most:
        shown = [value for value in shown if math.log2(value).is_integer()]
    shown = shown[:: math.ceil(len(shown) / most)]
    axis.set_xticks([places[value] for value in shown], map(str, shown))
    axis.xaxis.minorticks_off()


def _ends(
    axis: Axes,
    rows: pd.DataFrame,
    colors: dict[str, str],
    lines: Lines,
    against_one: bool,
) -> list[base.End]:
    low, high = axis.get_ylim()
    ends = list[base.End]()
    for line, cells in rows.groupby("line", sort=False):
        last = records(cells)[-1]
        ends.append(
            base.End(
                last["place"],
                max(last["value"], low),
                _wrapped(str(line)),
                colors[str(line)],
            )
        )
    if against_one and low <= 1 <= high:
        ends.append(base.End(axis.get_xlim()[1], 1.0, lines.reference, style.REFERENCE))
    return ends
