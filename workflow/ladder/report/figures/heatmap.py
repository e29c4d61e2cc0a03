"""Heatmap: two parameters of a kernel, the best over all others in every cell."""

import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from ladder.report.figures.base import MUTED, canvas
from ladder.report.sweep_data import FigureData, NoDataError
from ladder.results.statistics import at_size, contenders, parameter

_LOOK = {"cmap": "viridis", "linewidths": 1.2, "fmt": "", "annot_kws": {"fontsize": 11}}
_LOOK |= {"cbar_kws": {"label": "speed / reference"}}


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
    rows = data.some(data.here)
    rows = rows.assign(x=parameter(rows, x), y=parameter(rows, y), hue=parameter(rows, hue) if hue else "")
    by_cell = rows.groupby(["hue", "y", "x"])["speedup"]
    best = contenders(rows, ["hue", "y", "x"]).groupby(["hue", "y", "x"])["speedup"].max()
    panels = [value for value in _axis_values(data, hue) if (rows["hue"] == value).any()] if hue else [""]
    xs, ys = _axis_values(data, x), _axis_values(data, y)
    several = "best " if by_cell.size().max() > 1 else ""
    what = f"{several}speed relative to {data.reference_name} by {x} and {y}, {data.size_text}"
    look = _LOOK | {"vmin": best.min(), "vmax": best.max()}
    figure, axes = canvas(data, max(1.9 + 0.6 * len(ys), 3.2), what, columns=len(panels), sharey=True)
    for panel, axis in zip(panels, axes, strict=True):
        grid = best.loc[panel].unstack("x").reindex(index=ys, columns=xs)
        axis.grid(visible=False)
        axis.set_facecolor("#eeeeee")
        sns.heatmap(grid, ax=axis, annot=grid.map("{:#.3g}".format), cbar=axis is axes[-1], **look)
        for row, column in np.argwhere(grid.isna()):
            axis.text(column + 0.5, row + 0.5, "-", ha="center", va="center", color=MUTED)
        axis.set(xlabel=x, ylabel=y if axis is axes[0] else "")
        axis.tick_params(axis="y", rotation=0)
        if hue:
            axis.set_title(f"{hue} = {panel}", fontsize=10.5, color=MUTED)
    return figure
