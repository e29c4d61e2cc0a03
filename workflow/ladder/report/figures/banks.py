"""Banks: cycles of the clock, wavefronts of the profiler and the model's prediction, side by side."""

import json
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ladder.report.figures.base import canvas, legend_below
from ladder.report.figures.style import PALETTE
from ladder.report.titles import axis_words, said
from ladder.results.statistics import COSTS, access_costs, changing, parameter
from ladder.results.sweep_data import FigureData, NoDataError

_MODEL: dict[str, Any] = {
    "color": "#bdbdbd",
    "lw": 8,
    "label": "bank model",
    "zorder": 2,
}
_WAVES: dict[str, Any] = {"color": PALETTE[0], "mfc": "white", "mew": 1.4, "zorder": 4}
_CYCLES: dict[str, Any] = {
    "color": PALETTE[1],
    "label": "clock: cycles per access",
    "zorder": 4,
}
_LABEL_WIDTH = 88  # letters of a label as wide as the figure
_TILT = (
    35  # degrees by which words on the axis are turned, so that neighbours do not touch
)
_FLAT = 8  # costs up to which the axis counts them


def draw(data: FigureData) -> Figure:
    """One panel per kernel and set of other parameters; the model as dashes, the two measurements as marks on them."""
    table = access_costs(data.some(data.ok, "result"), data.metrics)
    if table[COSTS].isna().all(axis=None):
        raise NoDataError(
            "neither cycles nor wavefronts nor a prediction were recorded"
        )
    name = data.figure.x
    table = table.assign(
        x=parameter(table, name) if name else table["variant"],
        panel=_titles(table, name),
    )
    panels = dict(list(table.groupby("panel", sort=False)))
    widths = [max(rows["x"].nunique(), 3) for rows in panels.values()]
    shape: dict[str, Any] = {
        "columns": len(panels),
        "gridspec_kw": {"width_ratios": widths},
    }
    figure, axes = canvas(data, 4.6, "what one warp access costs", sharey=True, **shape)
    for axis, (panel, rows) in zip(axes, panels.items(), strict=True):
        _draw_costs(axis, rows, 5.5 if sum(widths) < 20 else 3.8)
        if len(panels) > 1:
            axis.set_title(str(panel), fontsize=10)
    # Panels share what their axes are, said under one of them: a label of the figure would lie on the legend.
    middle = len(axes) // 2
    beside = (
        2 * sum(widths[middle + 1 :]) + widths[middle]
    )  # as far on both sides as it is to the right edge
    shown = axis_words(data, name) if name else "variant"
    axes[middle].set_xlabel(textwrap.fill(shown, _LABEL_WIDTH * beside // sum(widths)))
    _cost_axis(axes[0], float(table[COSTS].max().max()))
    return legend_below(figure, axes[:1])


def _titles(table: pd.DataFrame, name: str | None) -> list[str]:
    """A panel of its own for each kernel and set of the parameters beside x; warps beside it change nothing."""
    params = [json.loads(text) for text in table["params"]]
    others = [
        other for other in changing(params) if name and other not in (name, "warps")
    ]
    several = table["kernel"].nunique() > 1
    titles = list[str]()
    for kernel, given in zip(table["kernel"], params, strict=True):
        parts = [said(other, given[other]) for other in others if other in given]
        titles.append("\n".join([kernel] * several + parts))
    return titles


def _draw_costs(axis: Axes, table: pd.DataFrame, size: float) -> None:
    whole = all(isinstance(value, int) for value in table["x"])
    table = table.sort_values("x") if whole else table
    # Values with gaps are set side by side: drawn to scale the small ones would lie on one another.
    numeric = whole and max(table["x"]) - min(table["x"]) < 2 * len(table)
    # Warps may repeat an x: the series then shows the first, the model is the same.
    table = table.drop_duplicates("x")
    places = np.array(table["x"] if numeric else range(len(table)), dtype=int)
    # Not bars: on a logarithmic axis their length would mean nothing.
    axis.hlines(table["model"], places - 0.42, places + 0.42, **_MODEL)
    axis.vlines(places, 0, table["model"], color="#cfcfcf", lw=0.8, zorder=1)
    label = "profiler: wavefronts per request"
    axis.plot(
        places - 0.22, table["wavefronts"], "s", ms=size + 0.5, label=label, **_WAVES
    )
    axis.plot(places + 0.22, table["cycles"], "o", ms=size, **_CYCLES)
    axis.grid(axis="x", visible=False)
    if numeric:
        axis.set_xticks([place for place in places if place == 1 or place % 4 == 0])
    else:
        axis.set_xticks(
            places, map(str, table["x"]), rotation=0 if whole else _TILT, fontsize=9
        )


def _cost_axis(axis: Axes, highest: float) -> None:
    axis.set_ylabel("cycles, or wavefronts, per access")
    if highest > _FLAT:
        axis.set_yscale("log", base=2)
        axis.set_ylim(0.7, highest * 1.5)
        ticks = [2**power for power in range(7) if 2**power <= highest * 1.5]
        axis.set_yticks(ticks, map(str, ticks))
    else:
        axis.set_ylim(0, highest * 1.15)
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
