"""Heat map: two parameters of a kernel, the best over all others in every cell."""

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ladder.model.errors import LadderError
from ladder.report.figures.base import canvas
from ladder.report.figures.style import AHEAD, BEHIND, MUTED
from ladder.report.titles import axis_words, rival
from ladder.results import statistics as stats
from ladder.results.statistics import at_size, estimate, parameter, records
from ladder.results.sweep_data import FigureData, NoDataError
from ladder.results.verdicts import TIED, gain

_AROUND = LinearSegmentedColormap.from_list("speed", [BEHIND, "#f4f4f4", AHEAD])
_BELOW = LinearSegmentedColormap.from_list("share", ["#f7fbff", "#6baed6", "#08306b"])
_LEAST = 0.02  # how far a scale around 1 reaches to either side at least
_ROOMY, _WIDE = 4, 8  # columns of cells that leave room for larger letters, and for intervals


def _axis_values(data: FigureData, name: str) -> list[int | str]:
    """Values of a parameter that were tried, in the order the sweep's kernels declare them."""
    timed = at_size(data.timings, data.size)
    for other in filter(None, (data.figure.x, data.figure.y, data.figure.hue)):
        timed = timed[parameter(timed, other).notna()]
    used = set(parameter(timed[timed["status"] != "unsupported"], name))
    axes = (entry.variant.kernel.parameters.get(name) for entry in data.sweep.entries)
    return list(dict.fromkeys(value for axis in axes if axis for value in axis.values if value in used))


def _scale(best: pd.DataFrame, alike: bool) -> tuple[Normalize, Colormap, str]:
    """One scale, the same to both sides of 1; where no cell reaches 1, from the slowest cell to the best."""
    speeds = best["speedup"]
    if alike and speeds.max() < 1:
        return Normalize(speeds.min(), speeds.max()), _BELOW, ""
    reach = max(speeds.max(), 1 / speeds.min(), 1 + _LEAST)
    return LogNorm(1 / reach, reach), _AROUND, "dashed: a tie"


def draw(data: FigureData) -> Figure:
    """Annotated cells; an empty one says why. Values not tried are left out."""
    import seaborn  # takes a second to import

    x, y, hue = data.figure.x, data.figure.y, data.figure.hue
    if x is None or y is None:
        raise NoDataError("the sweep names no x and y parameter for it")
    rows, best = data.some(data.in_table), data.best_by_place
    several = len(rows) > len(best)
    panels = [value for value in _axis_values(data, hue) if (best["hue"] == value).any()] if hue else [""]
    xs, ys = _axis_values(data, x), _axis_values(data, y)
    what = f"{data.size_text}, speed relative to {rival(data)}{', the best of each cell' if several else ''}"
    norm, colors, note = _scale(best, stats.comparable(rows))
    height = max(2.2 + 0.56 * len(ys), 3.4)
    figure, axes = canvas(data, height, what, columns=len(panels), sharey=True)
    across = len(xs) * len(panels)
    reasons: dict[str, str] = {}
    for panel, axis in zip(panels, axes, strict=True):
        own = best[best["hue"] == panel]
        own = own.assign(words=_words(own, intervals=across <= _WIDE))
        table, words = (own.pivot(index="y", columns="x", values=name) for name in ("speedup", "words"))
        table, words = (each.reindex(index=ys, columns=xs) for each in (table, words))
        look: dict[str, Any] = {"norm": norm, "cmap": colors, "cbar": False, "annot": words, "fmt": ""}
        seaborn.heatmap(
            table.astype(float), ax=axis, annot_kws={"fontsize": 9.5 if across <= _ROOMY else 8}, **look
        )
        axis.grid(visible=False)
        axis.set_facecolor("#f3f3f3")
        axis.set(xlabel="", ylabel="")
        axis.tick_params(length=0, labelrotation=0)
        for row in records(own) if note else ():
            if gain(row).verdict == TIED:
                corner = (xs.index(row["x"]) + 0.03, ys.index(row["y"]) + 0.04)
                axis.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, ec="black", lw=1.2, ls="--"))
        for row, column in np.argwhere(table.isna()):
            place = {y: ys[row], x: xs[column]} | ({hue: panel} if hue else {})
            why = _why(data, place)
            mark = reasons.setdefault(why, "abcdefghij"[len(reasons) % 10])
            middle: dict[str, Any] = {"ha": "center", "va": "center", "color": MUTED, "fontsize": 9}
            axis.text(column + 0.5, row + 0.5, mark, style="italic", **middle)
        if hue:
            axis.set_title(
                f"{axis_words(data, hue)}: {panel}" if len(panels) < 3 else f"{hue} = {panel}", fontsize=10
            )
    # Panels share what their axes are.
    figure.supxlabel("\n".join([axis_words(data, x), *_legend(reasons, note)]), fontsize=10)
    figure.supylabel(textwrap.fill(axis_words(data, y), max(16, int(9 * (height - 1.8)))), fontsize=10)
    bar = figure.colorbar(axes[0].collections[0], ax=axes, shrink=0.95, pad=0.02)
    bar.set_label(f"speed / {rival(data)}", fontsize=9)
    low, high = norm.vmin or 0.0, norm.vmax or 1.0
    ticks = np.round(np.geomspace(low, high, 5), 2 if high > 1.1 * low else 3).tolist()
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    return figure


def _why(data: FigureData, place: dict[str, Any]) -> str:
    """Why a cell is empty: what became of its variants, the constraint that forbids them, or that none was tried."""
    timed = at_size(data.timings, data.size)
    for name, value in place.items():
        timed = timed[parameter(timed, name) == value]
    if len(timed):
        first = records(timed)[0]
        reason = f": {first['reason']}" if first["reason"] else ""
        return f"{first['status'].replace('_', ' ')}{reason}"
    best = data.sweep.entries[0].variant
    try:
        other = best.kernel.variant({**best.params, **place}, best.dtype, best.layout, excluded=True)
    except LadderError:
        return "not tried"
    return other.absent(data.size) or "not tried"


def _legend(reasons: dict[str, str], note: str) -> list[str]:
    return textwrap.wrap(
        "; ".join([f"{mark}: {why}" for why, mark in reasons.items()] + [note] * bool(note)), 110
    )


def _words(cells: pd.DataFrame, intervals: bool) -> list[str]:
    """The value in each cell, and its interval where there is room."""
    speeds = [estimate(row, "speedup") for row in records(cells)]
    ranges = [f"\n{one.low:#.3g} to {one.high:#.3g}" if intervals else "" for one in speeds]
    return [f"{one.value:#.3g}{ends}" for one, ends in zip(speeds, ranges, strict=True)]
