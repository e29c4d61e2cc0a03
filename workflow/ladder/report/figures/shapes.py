"""Shapes: at every shape the fastest variant against the reference, and the mean over all shapes."""

from statistics import geometric_mean

from matplotlib.figure import Figure
from pandas import DataFrame

from ladder.report.figures import base, style
from ladder.report.titles import rival
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import FASTER, SLOWER, TIED, verdicts

_ROW = 0.2  # inches from row to row
_MARKS = {
    FASTER: (style.AHEAD, "o"),
    SLOWER: (style.BEHIND, "s"),
    TIED: (style.TIE, "D"),
}
"""Verdicts differ by mark as well as by colour."""


def draw(data: FigureData) -> Figure:
    """A row per shape with the speed of the fastest there, its mark and its intervals."""
    timed = data.some(data.fastest_by_size, "result at any shape")
    fields = list(data.sweep.problem.size_fields)
    rows = _rows(data, timed)
    figure, (axis,) = base.canvas(
        data,
        2.4 + _ROW * len(rows),
        f"the fastest at each shape, by {fields[0].upper()}",
    )
    for verdict, (color, marker) in _MARKS.items():
        alike = rows[rows["verdict"] == verdict]
        if len(alike):
            label = f"{verdict}: {len(alike)}"
            base.intervals(axis, alike, color, marker, label)
    for place in rows.loc[rows["speedup"].isna(), "place"]:
        axis.text(
            1,
            place,
            "no result",
            style="italic",
            va="center",
            backgroundcolor="white",
        )
    mean = geometric_mean(timed["speedup"])
    axis.axvline(
        mean,
        color=style.REFERENCE,
        ls="--",
        label=f"geometric mean of {len(timed)}: {mean:.3f}",
    )
    axis.axvline(
        1,
        color=style.REFERENCE,
        label=rival(data),
    )
    axis.set(
        xscale="log",
        xlabel=f"speed relative to {rival(data)}\n{base.RANGES}",
        ylim=(len(rows) - 0.4, -0.6),
        ylabel=" x ".join(name.upper() for name in fields),
    )
    base.factor_ticks(axis.xaxis)
    names = rows[fields].astype(str).agg(" x ".join, axis="columns")
    if len(data.sweep.dtypes) > 1:
        names += " (" + rows["dtype"] + ")"
    axis.set_yticks(range(len(rows)), names)
    return base.legend_below(figure, [axis])


def _rows(data: FigureData, timed: DataFrame) -> DataFrame:
    """The fastest variant at every shape with its `verdict`, or the shape alone, and its `place`: by dtype, M, N, K."""
    shapes = DataFrame(
        [{"dtype": dtype, **size} for dtype, size in data.sweep.shapes()]
    )
    shapes["order"] = shapes["dtype"].map(data.sweep.dtypes.index)
    shapes = shapes.sort_values(["order", *data.sweep.problem.size_fields])
    timed = timed.assign(verdict=verdicts(timed))
    rows = shapes.merge(timed, how="left")
    return rows.assign(place=range(len(rows)))
