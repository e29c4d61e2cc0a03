"""Heat map: two parameters of a kernel, the best over all others in every cell."""

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ladder.model.errors import LadderError
from ladder.report.figures import base
from ladder.report.figures.style import AHEAD, BEHIND
from ladder.report.titles import axis_words, rival
from ladder.results import statistics as stats
from ladder.results.statistics import at_size, estimate, parameter, records
from ladder.results.sweep_data import FigureData, NoDataError
from ladder.results.verdicts import TIED, gain

_AROUND = LinearSegmentedColormap.from_list("speed", [BEHIND, "#f4f4f4", AHEAD])
_BELOW = LinearSegmentedColormap.from_list("share", ["#f7fbff", "#6baed6", "#08306b"])
_LEAST = 0.02  # how far a scale around 1 reaches to either side at least
_ROOMY, _WIDE = (
    4,
    8,
)  # columns of cells that leave room for larger letters, and for intervals
_TIES = "dashed: a tie"
_MARKS = "abcdefghij"  # of reasons


def draw(data: FigureData) -> Figure:
    """Annotated cells; an empty one says why. Values not tried are left out."""
    x, y, hue = data.figure.x, data.figure.y, data.figure.hue
    if x is None or y is None:
        raise NoDataError("the sweep names no x and y parameter for it")
    rows, best = data.some(data.in_table), data.best_by_place
    panels: list[Any] = [""]
    if hue:
        panels = [value for value in _tried(data, hue) if value in {*best["hue"]}]
    xs, ys = _tried(data, x), _tried(data, y)
    what = f"{data.size_text}, speed relative to {rival(data)}"
    if len(rows) > len(best):
        what += ", the best of each cell"
    norm, colors = _scale(best["speedup"], stats.comparable(rows))
    height = max(2.2 + 0.56 * len(ys), 3.4)
    figure, axes = base.canvas(data, height, what, columns=len(panels), sharey=True)
    across = len(xs) * len(panels)
    reasons = dict[str, str]()
    for panel, axis in zip(panels, axes, strict=True):
        cells = best[best["hue"] == panel]
        words = _words(cells, intervals=across <= _WIDE)
        table = cells.assign(words=words).pivot(
            index="y", columns="x", values=["speedup", "words"]
        )
        speeds, annotations = (
            table[name].reindex(index=ys, columns=xs) for name in ("speedup", "words")
        )
        _draw_cells(
            axis,
            speeds.astype(float),
            annotations,
            norm,
            colors,
            9.5 if across <= _ROOMY else 8,
        )
        if colors is _AROUND:
            _draw_ties(axis, cells, xs, ys)
        for row, column in np.argwhere(speeds.isna()):
            why = _why(
                data, {y: ys[row], x: xs[column]} | ({hue: panel} if hue else {})
            )
            mark = reasons.setdefault(why, _MARKS[len(reasons) % len(_MARKS)])
            base.note(
                axis, mark, (column + 0.5, row + 0.5), ha="center", style="italic"
            )
        if hue:
            long = len(panels) < 3
            axis.set_title(
                f"{axis_words(data, hue)}: {panel}" if long else f"{hue} = {panel}",
                fontsize=10,
            )
    # Panels share what their axes are.
    legend = [f"{mark}: {why}" for why, mark in reasons.items()] + [_TIES] * (
        colors is _AROUND
    )
    figure.supxlabel(
        "\n".join([axis_words(data, x), *textwrap.wrap("; ".join(legend), 110)]),
        fontsize=10,
    )
    figure.supylabel(
        textwrap.fill(axis_words(data, y), max(16, int(9 * (height - 1.8)))),
        fontsize=10,
    )
    bar = figure.colorbar(axes[0].collections[0], ax=axes, shrink=0.95, pad=0.02)
    bar.set_label(f"speed / {rival(data)}", fontsize=9)
    low, high = norm.vmin or 0.0, norm.vmax or 1.0
    ticks = np.round(np.geomspace(low, high, 5), 2 if high > 1.1 * low else 3).tolist()
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    return figure


def _tried(data: FigureData, name: str) -> list[int | str]:
    """Values of a parameter that were tried, in the order the sweep's kernels declare them."""
    timed = at_size(data.timings, data.size)
    for other in filter(None, (data.figure.x, data.figure.y, data.figure.hue)):
        timed = timed[parameter(timed, other).notna()]
    used = {*parameter(timed[timed["status"] != "unsupported"], name)}
    axes = (entry.variant.kernel.parameters.get(name) for entry in data.sweep.entries)
    return list(
        dict.fromkeys(
            value for axis in axes if axis for value in axis.values if value in used
        )
    )


def _scale(speeds: "pd.Series[float]", alike: bool) -> tuple[Normalize, Colormap]:
    """One scale, the same to both sides of 1; where no cell reaches 1, from the slowest cell to the best."""
    if alike and speeds.max() < 1:
        return Normalize(speeds.min(), speeds.max()), _BELOW
    reach = max(speeds.max(), 1 / speeds.min(), 1 + _LEAST)
    return LogNorm(1 / reach, reach), _AROUND


def _words(cells: pd.DataFrame, intervals: bool) -> list[str]:
    """The value in each cell, and its interval where there is room."""
    words = list[str]()
    for row in records(cells):
        speed = estimate(row, "speedup")
        words.append(f"{speed.value:#.3g}")
        if intervals:
            words[-1] += f"\n{speed.low:#.3g} to {speed.high:#.3g}"
    return words


def _draw_cells(
    axis: Axes,
    speeds: pd.DataFrame,
    words: pd.DataFrame,
    norm: Normalize,
    colors: Colormap,
    size: float,
) -> None:
    import seaborn  # takes a second to import

    look: dict[str, Any] = {
        "norm": norm,
        "cmap": colors,
        "cbar": False,
        "annot_kws": {"fontsize": size},
    }
    seaborn.heatmap(speeds, ax=axis, annot=words, fmt="", **look)
    axis.grid(visible=False)
    axis.set(xlabel="", ylabel="", facecolor="#f3f3f3")
    axis.tick_params(length=0, labelrotation=0)


def _draw_ties(axis: Axes, cells: pd.DataFrame, xs: list[Any], ys: list[Any]) -> None:
    look: dict[str, Any] = {"fill": False, "ec": "black", "lw": 1.2, "ls": "--"}
    for row in records(cells):
        if gain(row).verdict == TIED:
            corner = (xs.index(row["x"]) + 0.03, ys.index(row["y"]) + 0.04)
            axis.add_patch(Rectangle(corner, 0.94, 0.92, **look))


def _why(data: FigureData, place: dict[str, Any]) -> str:
    """Why a cell is empty: what became of its variants, the constraint that forbids them, or that none was tried."""
    timed = at_size(data.timings, data.size)
    for name, value in place.items():
        timed = timed[parameter(timed, name) == value]
    if len(timed):
        first = records(timed)[0]
        status = str(first["status"]).replace("_", " ")
        return f"{status}: {first['reason']}" if first["reason"] else status
    variant = data.sweep.entries[0].variant
    try:
        params = {**variant.params, **place}
        other = variant.kernel.variant(
            params, variant.dtype, variant.layout, excluded=True
        )
    except LadderError:
        return "not tried"
    return other.absent(data.size) or "not tried"
