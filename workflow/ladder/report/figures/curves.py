"""Curves: speed relative to the reference over the size or over a parameter, a line a variant."""

import math
import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ladder.model.cell import count_label
from ladder.report.figures import base, style
from ladder.report.figures.lines import (
    chosen_lines,
    drawn_column,
    over_parameter,
    over_size,
    spilled,
    with_values,
)
from ladder.results.sweep_data import FigureData

_SHOWN = (
    0.85  # of the slowest of the fastest at any size: what is slower leaves the figure
)
_TICKS = 16  # values below all panels side by side
_UNIT_WIDTH = 30  # characters of a line beside an axis


def draw(data: FigureData) -> Figure:
    """A panel per dtype over the size; over a parameter one per dtype, size or value of `hue`."""
    parameter = data.figure.x
    lines = over_parameter(data, parameter) if parameter else over_size(data)
    column, unit = drawn_column(lines, bool(parameter))
    cells = with_values(lines.cells, column)
    if parameter:
        cells["spills"] = spilled(data, cells)
    names = chosen_lines(cells)
    drawn = cells[cells["line"].isin(names)]
    bottom = 0.0
    if column == "speedup" and not parameter:
        bottom = _bottom(drawn)
        fastest = drawn.groupby("line")["value"].transform("max")
        drawn = drawn[fastest >= bottom]
        names = [name for name in names if name in {*drawn["line"]}]
    panels = cells["panel"].unique()
    columns = min(len(panels), 4)
    rows = math.ceil(len(panels) / columns)
    about = lines.note
    variants = cells["line"].nunique()
    if len(names) < variants:
        about = f"{len(names)} of {variants} variants · {about}".strip(" ·")
    figure, axes = base.canvas(
        data,
        3 + 2 * rows + 0.1 * len(names),
        about,
        nrows=rows,
        ncols=columns,
        sharey=True,
    )
    for axis in axes[len(panels) :]:
        axis.remove()
    axes = axes[: len(panels)]

    xs = sorted({*drawn["x"]})
    # Sizes stand at their true places, values of a parameter side by side.
    places = dict(zip(xs, range(len(xs)) if parameter else xs, strict=True))
    drawn = drawn.assign(place=drawn["x"].map(places)).sort_values("place")
    labels = [str(x) if parameter else count_label(x) for x in xs]
    step = math.ceil(len(xs) * columns / _TICKS)
    for axis, panel in zip(axes, panels, strict=True):
        of_panel = drawn[drawn["panel"] == panel]
        for name, color in zip(names, style.PALETTE, strict=False):
            _draw_line(axis, of_panel[of_panel["line"] == name], color, name)
        if column == "speedup":
            axis.axhline(
                1,
                color=style.REFERENCE,
                ls="--",
                label=lines.reference,
            )
        axis.set_title(panel)
        if not parameter:
            axis.set_xscale("log", base=2)
        axis.set_xticks([*places.values()][::step], labels[::step])
        axis.minorticks_off()
    axes[0].set_yscale("log")
    if (drawn[["low", "predicted_low"]] < bottom).any(axis=None):
        axes[0].set_ylim(bottom=bottom)
    base.factor_ticks(axes[0].yaxis)
    for axis in axes[::columns]:
        axis.set_ylabel(textwrap.fill(unit, _UNIT_WIDTH))
    return base.legend_below(figure, axes, lines.about)


def _draw_line(axis: Axes, cells: DataFrame, color: str, name: str) -> None:
    """Values of one line: thick what was measured (95 %), thin what another GPU of the model would read."""
    axis.plot(
        cells["place"],
        cells["value"],
        "o-",
        color=color,
        label=name,
    )
    for prefix, width in (("", 3.0), ("predicted_", 0.8)):
        axis.vlines(
            cells["place"],
            cells[f"{prefix}low"],
            cells[f"{prefix}high"],
            color=color,
            lw=width,
            alpha=0.7,
        )
    if "spills" in cells and cells["spills"].any():
        hollow = cells[cells["spills"]]
        axis.plot(
            hollow["place"],
            hollow["value"],
            "o",
            color=color,
            mfc="white",
            zorder=3,
            label="hollow: registers spill to local memory",
        )


def _bottom(drawn: DataFrame) -> float:
    """The axis ends where values are far slower than the fastest: it shows where the others differ."""
    fastest = drawn.groupby(["panel", "x"])["value"].max()
    return float(_SHOWN * min(fastest.min(), 1))
