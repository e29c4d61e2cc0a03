"""Banks: cycles of the clock, wavefronts of the profiler and the model's prediction, side by side."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ladder.report.figures.base import canvas, legend_below
from ladder.report.figures.lines import what_differs
from ladder.report.figures.style import PALETTE
from ladder.report.titles import axis_words
from ladder.results.statistics import COSTS, access_costs, parameter
from ladder.results.sweep_data import FigureData, NoDataError

_LABELS = 18  # values that have a label below all panels


def draw(data: FigureData) -> Figure:
    """One panel per kernel and set of other parameters; the model as dashes, the two measurements as marks on them."""
    table = access_costs(data.some(data.ok, "result"), data.metrics)
    if table[COSTS].isna().all(axis=None):
        raise NoDataError(
            "neither cycles nor wavefronts nor a prediction were recorded"
        )
    name = data.figure.x
    table["x"] = table["variant"]
    if name:
        table["x"] = parameter(table, name)
    table["panel"] = what_differs(table, {name}).str.replace(", ", "\n")
    panels = dict(list(table.groupby("panel", sort=False)))
    figure, axes = canvas(
        data,
        4.8,
        "what one warp access costs",
        ncols=len(panels),
        width_ratios=[len(rows) for rows in panels.values()],
        sharey=True,
    )
    step = 1 + len(table) // _LABELS
    for axis, (panel, rows) in zip(axes, panels.items(), strict=True):
        _draw_costs(axis, rows, step)
        axis.set_title(str(panel))
    axes[0].set_ylabel("cycles, or wavefronts, per access")
    axes[0].set_yscale("log", base=2)
    axes[0].set_ylim(0.7, float(table[COSTS].max().max()) * 1.5)
    axes[0].yaxis.set_major_formatter("{x:g}")
    title = axis_words(data, name) if name else "variant"
    return legend_below(figure, axes, title)


def _draw_costs(axis: Axes, table: DataFrame, step: int) -> None:
    if all(isinstance(value, int) for value in table["x"]):
        table = table.sort_values("x")
    places = np.arange(len(table))
    # Not bars: on a logarithmic axis their length would mean nothing.
    axis.hlines(
        table["model"],
        places - 0.42,
        places + 0.42,
        color="#bdbdbd",
        lw=8,
        label="bank model",
    )
    axis.plot(
        places - 0.22,
        table["wavefronts"],
        "s",
        color=PALETTE[0],
        mfc="white",
        label="profiler: wavefronts per request",
    )
    axis.plot(
        places + 0.22,
        table["cycles"],
        "o",
        color=PALETTE[1],
        label="clock: cycles per access",
    )
    axis.grid(axis="x", visible=False)
    axis.set_xticks(places[::step], table["x"].astype(str)[::step])
