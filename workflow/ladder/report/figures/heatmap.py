"""Heat map: two parameters of a kernel, the best over all others in every cell."""

import textwrap
from collections.abc import Iterable
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame

from ladder.model.errors import LadderError
from ladder.model.schemas import Fields
from ladder.report.figures import base
from ladder.report.figures.style import AHEAD, BEHIND, MUTED
from ladder.report.titles import axis_words, rival
from ladder.results.statistics import at_size, comparable, parameter, records
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import TIED, verdicts

_AROUND = LinearSegmentedColormap.from_list("speed", [BEHIND, "#f4f4f4", AHEAD])
_LEAST = 0.02  # how far a scale around 1 reaches to either side at least
_WIDE = 8  # columns of cells that leave room for intervals


def draw(data: FigureData) -> Figure:
    """Annotated cells, a panel for each value of `hue`; an empty cell says why. Values not tried are left out."""
    x, y, hue = data.figure.x, data.figure.y, data.figure.hue
    assert x
    assert y  # or the sweep is refused
    rows = data.some(data.in_table)
    best = data.best_by_place
    names = [name for name in (x, y, hue) if name]
    timed = at_size(data.timings, data.size)
    timed = timed.assign(**{name: parameter(timed, name) for name in names})
    tried = timed[timed["status"] != "unsupported"].dropna(subset=names)
    xs, ys = (_in_order(data, name, tried[name]) for name in (x, y))
    panels = best["hue"].nunique()
    about = f"{data.size_text}, speed relative to {rival(data)}"
    if len(rows) > len(best):
        about += ", the best of each cell"
    figure, axes = base.canvas(
        data,
        max(2.2 + 0.56 * len(ys), 3.4),
        about,
        ncols=panels,
        sharey=True,
    )
    with_interval = len(xs) * panels <= _WIDE
    best = best.assign(words=_words(best, with_interval))
    colors = _colors(best["speedup"], comparable(rows))
    reasons = dict[str, str]()
    for (value, cells), axis in zip(best.groupby("hue"), axes, strict=True):
        speeds = cells.pivot(index="y", columns="x", values="speedup")
        speeds = speeds.reindex(index=ys, columns=xs).astype(float)
        words = cells.pivot(index="y", columns="x", values="words")
        _draw_cells(axis, speeds, words.reindex_like(speeds), colors)
        place = {hue: value} if hue else {}
        if hue:
            axis.set_title(f"{hue} = {value}")
        for row, column in np.argwhere(speeds.isna()):
            place |= {y: ys[row], x: xs[column]}
            why = _why(data, timed, place)
            mark = reasons.setdefault(why, ascii_lowercase[len(reasons) % 26])
            axis.text(
                column + 0.5,
                row + 0.5,
                mark,
                style="italic",
                color=MUTED,
                ha="center",
                va="center",
            )
    legend = "; ".join(f"{mark}: {why}" for why, mark in reasons.items())
    legend = textwrap.fill(legend, 110)
    body = axes[0].figure
    body.supxlabel(f"{axis_words(data, x)}\n{legend}".strip(), fontsize=10)
    body.supylabel(textwrap.fill(axis_words(data, y), 24), fontsize=10)
    bar = figure.colorbar(
        axes[0].collections[0],
        ax=axes,
        pad=0.02,
        ticks=MaxNLocator(5),
        format="{x:g}",
        label=f"speed / {rival(data)}",
    )
    bar.minorticks_off()
    return figure


def _in_order(data: FigureData, name: str, tried: Iterable[Any]) -> list[Any]:
    """Values of a parameter that were tried, in the order the sweep's kernels declare them."""
    declared = dict[Any, None]()
    for kernel in data.sweep.kernels.values():
        values = kernel.parameters.get(name)
        if values:
            declared |= dict.fromkeys(values.values)
    kept = {*tried}
    return [value for value in declared if value in kept]


def _colors(speeds: "pd.Series[float]", alike: bool) -> Fields:
    """One scale, the same to both sides of 1; where no cell reaches 1, from the slowest cell to the best."""
    low, high = speeds.min(), speeds.max()
    if alike and high < 1:
        return {"vmin": low, "vmax": high, "cmap": "Blues"}
    reach = max(high, 1 / low, 1 + _LEAST)
    return {"norm": LogNorm(1 / reach, reach), "cmap": _AROUND}


def _words(cells: DataFrame, with_interval: bool) -> "pd.Series[str]":
    """The value in each cell, whether it is a tie, and its interval where there is room."""
    columns = ["speedup", "speedup_low", "speedup_high"]
    numbers = cells[columns].map("{:#.3g}".format)
    words = numbers["speedup"] + np.where(verdicts(cells) == TIED, " tie", "")
    if with_interval:
        words += "\n" + numbers["speedup_low"] + " to " + numbers["speedup_high"]
    return words


def _draw_cells(
    axis: Axes,
    speeds: DataFrame,
    words: DataFrame,
    colors: Fields,
) -> None:
    import seaborn  # takes a second to import

    seaborn.heatmap(
        speeds,
        ax=axis,
        annot=words,
        fmt="",
        annot_kws={"fontsize": 8.5},
        cbar=False,
        **colors,
    )
    axis.grid(visible=False)
    axis.set(xlabel="", ylabel="", facecolor="#f3f3f3")
    axis.tick_params(length=0, labelrotation=0)


def _why(data: FigureData, timed: DataFrame, place: Fields) -> str:
    """Why a cell is empty: what became of its variants, the constraint that forbids them, or that none was tried."""
    timed = at_size(timed, place)
    if len(timed):
        first = records(timed)[0]
        status = str(first["status"]).replace("_", " ")
        return f"{status}: {first['reason']}" if first["reason"] else status
    variant = data.sweep.entries[0].variant
    params = {**variant.params, **place}
    try:
        other = variant.kernel.variant(
            params,
            variant.dtype,
            variant.layout,
            excluded=True,
        )
    except LadderError:
        return "not tried"
    return other.absent(data.size) or "not tried"
