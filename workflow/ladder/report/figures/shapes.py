"""Shapes: at every shape the fastest variant against the reference, and the mean over all shapes."""

from statistics import geometric_mean
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures import base, style
from ladder.report.titles import rival
from ladder.results import statistics as stats
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import FASTER, SLOWER, TIED, verdicts

ROW, GAP, _TALLEST = 0.2, 0.08, 8.0
"""Inches from row to row, between groups of rows, and of all rows."""
_MARKS: dict[str, dict[str, Any]] = {
    FASTER: {"marker": "o"},
    SLOWER: {"marker": "s"},
    TIED: {"marker": "D"},
}
"""Verdicts differ by mark as well as by colour."""


def _rows(data: FigureData, timed: pd.DataFrame) -> pd.DataFrame:
    """The fastest variant at every shape with its `verdict`, or the shape alone, sorted by dtype, M, N and K."""
    dtypes = data.sweep.dtypes
    shapes = sorted(data.sweep.shapes(), key=lambda shape: (dtypes.index(shape[0]), *shape[1].values()))
    rows = pd.DataFrame([{"dtype": dtype, **size} for dtype, size in shapes]).merge(timed, how="left")
    return rows.assign(verdict=verdicts(rows).where(rows["speedup"].notna(), ""))


def _places(groups: "pd.Series[str]") -> "tuple[pd.Series[float], float]":
    """Middles of the rows and the height of all, in inches; groups that have rows to keep together stand apart."""
    gap = GAP if 2 * groups.nunique() <= len(groups) else 0
    height = min(ROW, (_TALLEST - gap * groups.nunique()) / len(groups))
    ends = (height + gap * groups.ne(groups.shift()).where(groups.index > 0, False)).cumsum()
    return ends - height / 2, float(ends.iloc[-1])


def _marks(axis: Axes, rows: pd.DataFrame) -> None:
    """Speeds with their intervals, by verdict; words where there is no result."""
    for verdict, mark in _MARKS.items():
        own = stats.records(rows[rows["verdict"] == verdict])
        color = base.VERDICTS[verdict]
        for row in own:
            base.interval(axis, row["place"], row, color, **mark)
        if own:
            axis.plot([], [], ls="", ms=5, color=color, label=f"{verdict}: {len(own)}", **mark)
    # On white, for the lines at 1 and at the mean cross the words.
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5, "bbox": white}
    for place in rows[rows["verdict"] == ""]["place"]:
        axis.text(1, place, "no result", zorder=4, color=style.MUTED, style="italic", **middle)


def draw(data: FigureData) -> Figure:
    """A row per shape with its mark and 95 % interval; on the right what was the fastest there."""
    timed = data.some(data.fastest_by_size, "result at any shape")
    rows, fields = _rows(data, timed), list(data.sweep.problem.size_fields)
    rows["place"], height = _places(rows["dtype"] + " " + rows[fields[0]].astype(str))
    figure, (axis,) = base.canvas(data, 2.2 + height, f"the fastest at each shape, by {fields[0].upper()}")
    _marks(axis, rows)
    ends = timed[["speedup_low", "speedup_high", "predicted_low", "predicted_high"]].stack().astype(float)
    base.factor_axis(axis, min(1.0, *ends), max(1.0, *ends))
    mean = geometric_mean(timed["speedup"])
    uprights = [(mean, f"geometric mean of {len(timed)}: {mean:.3f}", "--"), (1.0, rival(data), "-")]
    # The name of the lower stands on its left.
    for (at, text, line), side, offset in zip(sorted(uprights), ("right", "left"), (-3, 3), strict=True):
        axis.axvline(at, color=style.REFERENCE, lw=1.4, ls=line, zorder=2)
        head: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axis.annotate(
            text, (at, 1), (offset, 3), va="bottom", ha=side, fontsize=9.5, color=style.REFERENCE, **head
        )
    shapes = rows[fields].astype(str).agg(" x ".join, axis=1)
    shapes = shapes + " (" + rows["dtype"] + ")" if len(data.sweep.dtypes) > 1 else shapes
    axis.set_yticks(rows["place"], shapes, fontsize=10)
    axis.set(ylim=(height, 0), xlabel=f"speed relative to {rival(data)}\n{base.RANGES}")
    axis.set_ylabel(" x ".join(name.upper() for name in fields))
    return base.legend_below(figure, axis)
