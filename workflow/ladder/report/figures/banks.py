"""Banks: cycles of the clock, wavefronts of the profiler and the model's prediction, side by side."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ladder.report.figures.data import FigureData, NoDataError
from ladder.report.figures.style import PALETTE, canvas, heading, legend_below
from ladder.results.statistics import access_costs, parameter, params_of

_TILT = 35
"""Degrees by which words on the axis are turned, so that neighbours do not touch."""


def _table(data: FigureData) -> pd.DataFrame:
    """Costs per access with the figure's x beside them."""
    table = access_costs(data.some(data.ok(), "result"), data.metrics)
    if table[["cycles", "wavefronts", "model"]].isna().all(axis=None):
        raise NoDataError("neither cycles nor wavefronts nor a prediction were recorded")
    name = data.figure.x
    return table.assign(x=parameter(table, name) if name else table["variant"], panel=_panels(table, name))


def _panels(table: pd.DataFrame, x: str | None) -> list[str]:
    """Each row's panel: kernels where there are several, and the parameters beside x that change."""
    params = [params_of(text) for text in table["params"]]
    changing = [
        name
        for name in dict.fromkeys(name for given in params for name in given)
        if name not in (x, "warps") and len({given.get(name) for given in params}) > 1
    ]
    several = table["kernel"].nunique() > 1
    return [
        "\n".join(
            [kernel] * several
            + [f"{name} {given[name]}" for name in changing if x is not None and name in given]
        )
        for kernel, given in zip(table["kernel"], params, strict=True)
    ]


def _panel(axis: Axes, table: pd.DataFrame, size: float) -> None:
    whole = all(isinstance(value, int) for value in table["x"])
    table = table.sort_values("x") if whole else table
    # Values with gaps are set side by side: drawn to scale the small ones would lie on one another.
    numeric = whole and max(table["x"]) - min(table["x"]) < 2 * len(table)
    # A parameter beside x (warps) may repeat an x: the series then shows the first, the model is the same.
    table = table.drop_duplicates("x")
    places = list(table["x"]) if numeric else list(range(len(table)))
    # Not bars: on a logarithmic axis their length would mean nothing.
    ends = [place - 0.42 for place in places], [place + 0.42 for place in places]
    axis.hlines(table["model"], *ends, color="#bdbdbd", lw=8, label="bank model", zorder=2)
    axis.vlines(places, 0, table["model"], color="#cfcfcf", lw=0.8, zorder=1)
    left = [place - 0.22 for place in places]
    right = [place + 0.22 for place in places]
    axis.plot(
        left,
        table["wavefronts"],
        "s",
        ms=size + 0.5,
        mfc="white",
        mew=1.4,
        color=PALETTE[0],
        zorder=4,
        label="profiler: wavefronts per request",
    )
    axis.plot(
        right, table["cycles"], "o", ms=size, color=PALETTE[1], zorder=4, label="clock: cycles per access"
    )
    axis.grid(axis="x", visible=False)
    if numeric:
        axis.set_xticks([place for place in places if place == 1 or place % 4 == 0])
    else:
        axis.set_xticks(places, [str(value) for value in table["x"]], rotation=0 if whole else _TILT)
        axis.tick_params(axis="x", labelsize=9)


def draw(data: FigureData) -> Figure:
    """One panel per kernel and set of other parameters; the model as dashes, the two measurements as marks on them."""
    table = _table(data)
    panels = list(dict.fromkeys(table["panel"]))
    widths = [max(table[table["panel"] == panel]["x"].nunique(), 3) for panel in panels]
    title = heading(data.sweep.title, "what one warp access costs")
    figure, axes = canvas(
        data, 4.6, title, columns=len(panels), sharey=True, gridspec_kw={"width_ratios": widths}
    )
    for axis, panel in zip(axes, panels, strict=True):
        _panel(axis, table[table["panel"] == panel], 5.5 if sum(widths) < 20 else 3.8)
        axis.set_xlabel(data.figure.x or "variant")
        if len(panels) > 1:
            axis.set_title(panel, fontsize=10)
    highest = float(table[["cycles", "wavefronts", "model"]].max().max())
    if highest > 8:
        axes[0].set_yscale("log", base=2)
        axes[0].set_ylim(0.7, highest * 1.5)
        ticks = [2**power for power in range(7) if 2**power <= highest * 1.5]
        axes[0].set_yticks(ticks, [str(tick) for tick in ticks])
    else:
        axes[0].set_ylim(0, highest * 1.15)
        axes[0].yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("cycles, or wavefronts, per access")
    legend_below(figure, axes[0])
    return figure
