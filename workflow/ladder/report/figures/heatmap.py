"""Heatmap: two parameters of a kernel, the best over all others in every cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from ladder.report.figures.data import FigureData, NoDataError
from ladder.report.figures.style import MUTED, canvas, heading
from ladder.results.statistics import at_size, parameter


def _axis_values(data: FigureData, name: str) -> list[int | str]:
    """Values of a parameter that the sweep uses, in the order its kernels declare them."""
    used = {entry.variant.params.get(name) for entry in data.sweep.entries}
    order: dict[int | str, None] = {}
    for entry in data.sweep.entries:
        axis = entry.variant.kernel.parameters.get(name)
        for value in axis.values if axis else ():
            if value in used:
                order[value] = None
    return list(order)


def draw(data: FigureData) -> Figure:
    """Annotated cells; a dash: no combination was asked for or gave a result. Values not tried are left out."""
    x, y, hue = data.figure.x, data.figure.y, data.figure.hue
    if x is None or y is None:
        raise NoDataError("the sweep names no x and y parameter for it")
    rows = data.some(at_size(data.ok(), data.size), f"result at {data.size_text}").copy()
    column = "speedup"
    rows["x"], rows["y"] = parameter(rows, x), parameter(rows, y)
    rows["hue"] = parameter(rows, hue) if hue else ""
    panels: list[int | str] = _axis_values(data, hue) if hue else [""]
    panels = [value for value in panels if (rows["hue"] == value).any()]
    timed = at_size(data.timings, data.size)
    tried = timed[timed["status"] != "unsupported"]
    xs = [value for value in _axis_values(data, x) if (parameter(tried, x) == value).any()]
    ys = [value for value in _axis_values(data, y) if (parameter(tried, y) == value).any()]
    several = rows.groupby(["x", "y", "hue"]).size().max() > 1
    what = f"{'best ' if several else ''}speed relative to {data.reference_name} by {x} and {y}, {data.size_text}"
    figure, axes = canvas(
        data, max(1.9 + 0.6 * len(ys), 3.2), heading(data.sweep.title, what), columns=len(panels), sharey=True
    )
    best = rows.groupby(["hue", "y", "x"])[column].max()
    low, high = float(best.min()), float(best.max())
    for place, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        grid = np.array([[float(best.get((panel, b, a), np.nan)) for a in xs] for b in ys])
        text = [["" if np.isnan(value) else f"{value:#.3g}" for value in line] for line in grid]
        axis.grid(visible=False)
        axis.set_facecolor("#eeeeee")
        sns.heatmap(
            pd.DataFrame(grid, index=ys, columns=xs),
            ax=axis,
            vmin=low,
            vmax=high,
            cmap="viridis",
            annot=np.array(text),
            fmt="",
            annot_kws={"fontsize": 11},
            linewidths=1.2,
            cbar=place == len(panels) - 1,
            cbar_kws={"label": "speed / reference"},
        )
        for row, line in enumerate(grid):
            for position, value in enumerate(line):
                if np.isnan(value):
                    axis.text(position + 0.5, row + 0.5, "-", ha="center", va="center", color=MUTED)
        axis.set_xlabel(x)
        axis.set_ylabel(y if place == 0 else "")
        axis.tick_params(axis="y", rotation=0)
        if hue:
            axis.set_title(f"{hue} = {panel}", fontsize=10.5, color=MUTED)
    return figure
