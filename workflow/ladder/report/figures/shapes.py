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

_ROW, _GAP, _TALLEST = (
    0.2,
    0.08,
    8.0,
)  # inches from row to row, between groups of rows, and of all rows
_MARKS: dict[str, dict[str, Any]] = {
    FASTER: {"marker": "o"},
    SLOWER: {"marker": "s"},
    TIED: {"marker": "D"},
}
"""Verdicts differ by mark as well as by colour."""


def draw(data: FigureData) -> Figure:
    """A row per shape with its mark and 95 % interval; on the right what was the fastest there."""
    timed = data.some(data.fastest_by_size, "result at any shape")
    fields = list(data.sweep.problem.size_fields)
    rows = _rows(data, timed)
    rows["place"], height = _places(rows["dtype"] + " " + rows[fields[0]].astype(str))
    figure, (axis,) = base.canvas(
        data, 2.2 + height, f"the fastest at each shape, by {fields[0].upper()}"
    )
    _draw_marks(axis, rows)
    ends = (
        timed[["speedup_low", "speedup_high", "predicted_low", "predicted_high"]]
        .stack()
        .astype(float)
    )
    base.factor_axis(axis, min(1.0, *ends), max(1.0, *ends))
    mean = geometric_mean(timed["speedup"])
    uprights = [
        (mean, f"geometric mean of {len(timed)}: {mean:.3f}", "--"),
        (1.0, rival(data), "-"),
    ]
    # The name of the lower stands on its left.
    for (at, text, line), side, offset in zip(
        sorted(uprights), ("right", "left"), (-3, 3), strict=True
    ):
        axis.axvline(at, color=style.REFERENCE, lw=1.4, ls=line, zorder=2)
        look: dict[str, Any] = {
            "va": "bottom",
            "ha": side,
            "fontsize": 9.5,
            "color": style.REFERENCE,
        }
        base.note(
            axis, text, (at, 1), (offset, 3), xycoords=("data", "axes fraction"), **look
        )
    names = rows[fields].astype(str).agg(" x ".join, axis=1)
    if len(data.sweep.dtypes) > 1:
        names += " (" + rows["dtype"] + ")"
    axis.set_yticks(rows["place"], names, fontsize=10)
    axis.set(ylim=(height, 0), xlabel=f"speed relative to {rival(data)}\n{base.RANGES}")
    axis.set_ylabel(" x ".join(name.upper() for name in fields))
    return base.legend_below(figure, [axis])


def _rows(data: FigureData, timed: pd.DataFrame) -> pd.DataFrame:
    """The fastest variant at every shape with its `verdict`, or the shape alone, sorted by dtype, M, N and K."""
    dtypes = data.sweep.dtypes
    shapes = sorted(
        data.sweep.shapes(),
        key=lambda shape: (dtypes.index(shape[0]), *shape[1].values()),
    )
    rows = pd.DataFrame([{"dtype": dtype, **size} for dtype, size in shapes]).merge(
        timed, how="left"
    )
    return rows.assign(verdict=verdicts(rows).where(rows["speedup"].notna(), ""))


def _places(groups: "pd.Series[str]") -> "tuple[pd.Series[float], float]":
    """Middles of the rows and the height of all, in inches; groups that have rows to keep together stand apart."""
    gap = _GAP if 2 * groups.nunique() <= len(groups) else 0
    height = min(_ROW, (_TALLEST - gap * groups.nunique()) / len(groups))
    begins_group = groups.ne(groups.shift(fill_value=groups.iloc[0]))
    ends = (height + gap * begins_group).cumsum()
    return ends - height / 2, float(ends.iloc[-1])


def _draw_marks(axis: Axes, rows: pd.DataFrame) -> None:
    """Speeds with their intervals, by verdict; words where there is no result."""
    for verdict, mark in _MARKS.items():
        color, timed = (
            base.VERDICTS[verdict],
            stats.records(rows[rows["verdict"] == verdict]),
        )
        for row in timed:
            base.interval(axis, row["place"], row, color, **mark)
        if timed:
            axis.plot(
                [],
                [],
                ls="",
                ms=5,
                color=color,
                label=f"{verdict}: {len(timed)}",
                **mark,
            )
    # On white, for the lines at 1 and at the mean cross the words.
    look: dict[str, Any] = {
        "style": "italic",
        "ha": "center",
        "fontsize": 8.5,
        "zorder": 4,
    }
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    for place in rows[rows["verdict"] == ""]["place"]:
        base.note(axis, "no result", (1, place), **look)
