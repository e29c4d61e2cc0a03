"""Heatmap: two parameters of a kernel, the best over all others in every cell."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ladder.report.figures.base import canvas
from ladder.report.figures.style import AHEAD, BEHIND, MUTED, TIE
from ladder.report.sweep_data import FigureData, NoDataError
from ladder.results.statistics import at_size, estimate, parameter, records
from ladder.results.verdicts import TIED, verdict_of

_COLORS = LinearSegmentedColormap.from_list("speed", [BEHIND, TIE, AHEAD])
_LEAST = 0.02  # how far the scale reaches to either side of 1 at least
_DARK = 0.38  # from the middle of the scale, 0.5, on which black does not stand out
_WIDE = 8  # columns of cells that leave room for intervals


def _axis_values(data: FigureData, name: str) -> list[int | str]:
    """Values of a parameter that were tried, in the order the sweep's kernels declare them."""
    timed = at_size(data.timings, data.size)
    used = set(parameter(timed[timed["status"] != "unsupported"], name))
    axes = (entry.variant.kernel.parameters.get(name) for entry in data.sweep.entries)
    return list(dict.fromkeys(value for axis in axes if axis for value in axis.values if value in used))


def draw(data: FigureData) -> Figure:
    """Annotated cells; a dash: no combination is in the sweep or gave a result. Values not tried are left out."""
    x, y, hue = data.figure.x, data.figure.y, data.figure.hue
    if x is None or y is None:
        raise NoDataError("the sweep names no x and y parameter for it")
    rows, best = data.some(data.in_table), data.best_by_place
    several = len(rows) > len(best)
    panels = [value for value in _axis_values(data, hue) if (best["hue"] == value).any()] if hue else [""]
    xs, ys = _axis_values(data, x), _axis_values(data, y)
    what = f"{'best ' if several else ''}speed relative to {data.short_reference} by {x} and {y}, {data.size_text}"
    low, high = min(best["speedup"].min(), 1 - _LEAST), max(best["speedup"].max(), 1 + _LEAST)
    look: dict[str, Any] = {"norm": TwoSlopeNorm(1.0, low, high), "cmap": _COLORS}
    height = max(2.0 + 0.56 * len(ys), 3.2)
    figure, axes = canvas(data, height, what, columns=len(panels), sharey=True)
    for panel, axis in zip(panels, axes, strict=True):
        own = best[best["hue"] == panel]
        table = own.set_index(["y", "x"])["speedup"].unstack("x").reindex(index=ys, columns=xs)
        image = axis.imshow(table.to_numpy(float), aspect="auto", **look)
        axis.grid(visible=False)
        axis.set_facecolor("#eeeeee")
        _write(axis, own, xs, ys, len(xs) * len(panels) <= _WIDE)
        for row, column in np.argwhere(table.isna()):
            axis.text(column, row, "-", ha="center", va="center", color=MUTED)
        axis.set_xticks(range(len(xs)), [str(value) for value in xs])
        axis.set_yticks(range(len(ys)), [str(value) for value in ys])
        axis.set(xlabel=x, ylabel=y if axis is axes[0] else "")
        axis.tick_params(length=0)
        if hue:
            axis.set_title(f"{hue} = {panel}", fontsize=10.5, color=MUTED)
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    bar.set_label("speed / reference; framed: ties")
    bar.outline.set_visible(False)
    return figure


def _write(
    axis: Axes, cells: pd.DataFrame, xs: list[int | str], ys: list[int | str], intervals: bool
) -> None:
    """The value in each cell, its interval where there is room, and a frame around a tie."""
    for row in records(cells):
        column, line = xs.index(row["x"]), ys.index(row["y"])
        speed = estimate(row, "speedup")
        shade = float(np.asarray(axis.images[0].norm(np.array([speed.value])))[0])
        ink = "white" if abs(shade - 0.5) > _DARK else "black"
        look: dict[str, Any] = {"ha": "center", "color": ink}
        axis.text(
            column,
            line - (0.12 if intervals else 0),
            f"{speed.value:#.3g}",
            va="center",
            fontsize=10.5,
            **look,
        )
        if intervals:
            text = f"{speed.low:#.3g} to {speed.high:#.3g}"
            axis.text(column, line + 0.24, text, va="center", fontsize=7.5, **look)
        if verdict_of(row) == TIED:
            frame: dict[str, Any] = {"fill": False, "ec": "black", "lw": 1.4, "ls": "--"}
            axis.add_patch(Rectangle((column - 0.47, line - 0.46), 0.94, 0.92, **frame))
