"""Curves: speed over the size, with the reference: as a rate where there is one, and as the ratio to it."""

import itertools
import json
import math
import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from ladder.model.cell import count_label, size_label
from ladder.report.figures import base, style
from ladder.report.sweep_data import FigureData, distinguishing, shown_value
from ladder.results.statistics import at_size, parameter, rate_column

MOST = 9
_LONGEST_NAME = 30  # characters of a reference that fit beside the axis
_LEGEND_WIDTH = 44  # characters of a line of the legend
_MOST_TICKS = 12  # sizes on the axes of all panels together
_LOGARITHMIC = 10  # from this ratio of the largest to the smallest rate on, the axis counts decades
_ASIDE = 0.025  # distance of neighbouring lines in octaves


def _chosen(rows: pd.DataFrame) -> list[str]:
    """Variants drawn: all, or the best at any size where that many lines would cover each other."""
    best = rows.groupby("variant", sort=False)["speedup"].max()
    drawn = best.sort_values(ascending=False).head(MOST) if len(best) > MOST else best
    return [str(name) for name in best.index if name in drawn]


def _panel(axis: Axes, data: FigureData, rows: pd.DataFrame, column: str, field: str, most: int) -> None:
    chosen = _chosen(rows)
    for index, variant in enumerate(chosen):
        line = rows[rows["variant"] == variant].sort_values(field)
        # Each line a little aside of its neighbour, so that none covers another.
        x = line[field].astype(float) * 2 ** (_ASIDE * (index - (len(chosen) - 1) / 2))
        # The panel's title says the dtype.
        label = data.names[variant].removesuffix(f" ({line['dtype'].iloc[0]})")
        if own := data.own_baselines.get(variant):
            label += f"\n(against a baseline with {own})"
        base.points(axis, index, x, line, column, label, ms=5.5, lw=1.6)
    look: dict[str, Any] = {"color": style.REFERENCE, "ls": "--", "lw": 1.8}
    look["label"] = textwrap.fill(data.reference_name, _LEGEND_WIDTH)
    if column == "speedup":
        axis.axhline(1, **look)
    else:
        factor = rows["median_us"] / rows["reference_median_us"]
        value = rows["reference_median_us"] if column == "median_us" else rows[column] * factor
        middle = value.groupby(rows[field]).median()
        axis.plot(middle.index.astype(float), middle, **look)
    sizes = sorted({int(value) for value in rows[field]})
    sizes = sizes[:: math.ceil(len(sizes) / most)]
    axis.set_xscale("log", base=2)
    base.only_ticks(axis, sizes, [count_label(size) for size in sizes])


def _rate_limits(axis: Axes, values: "pd.Series[float]") -> None:
    """From 0 on, or by decades where small sizes would otherwise lie on the axis."""
    if values.max() < _LOGARITHMIC * values.min():
        axis.set_ylim(bottom=0, top=1.02 * axis.get_ylim()[1])
        return
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    few = values.max() < _LOGARITHMIC**2 * values.min()
    axis.yaxis.set_minor_formatter(base.some_ticks if few else NullFormatter())


def _over_parameter(data: FigureData, name: str) -> Figure:
    """Speed-ups over a parameter, a panel per size; lines are variants that differ in nothing else."""
    rows = data.some(data.ok, "result to draw over a parameter")
    rows = rows.assign(x=parameter(rows, name), given=rows["params"].map(json.loads)).dropna(subset="x")
    data.some(rows, f"variant with the parameter {name}")
    wanted = [data.size] if data.figure.size is not None else data.sweep.sizes
    panels = {size_label(size): own for size in wanted if len(own := at_size(rows, size))}
    values = sorted(set(rows["x"]), key=lambda value: (isinstance(value, str), value))
    others = distinguishing([{one: given[one] for one in given if one != name} for given in rows["given"]])
    labels = [
        ", ".join(
            [kernel] * (rows["kernel"].nunique() > 1)
            + [f"{one}={shown_value(one, given)}" for one in others if one in given]
        )
        for kernel, given in zip(rows["kernel"], rows["given"], strict=True)
    ]
    kept = dict.fromkeys(labels)
    lines = dict(zip(rows.index, labels, strict=True))
    legend_rows = math.ceil((len(kept) + 1) / base.legend_columns([*kept, data.short_reference]))
    what = f"speed relative to {data.short_reference} over {name}"
    shape: dict[str, Any] = {"columns": len(panels), "sharey": True}
    figure, axes = base.canvas(data, 4.2 + 0.24 * legend_rows, what, **shape)
    for axis, (size, own) in zip(axes, panels.items(), strict=True):
        for index, label in enumerate(kept):
            line = own[[lines[place] == label for place in own.index]].sort_values("x")
            places = pd.Series([values.index(value) for value in line["x"]], line.index, dtype=float)
            aside = 0.05 * (index - (len(kept) - 1) / 2)
            base.points(axis, index, places + aside, line, "speedup", label or name, ms=5.5, lw=1.6)
        axis.axhline(1, color=style.REFERENCE, ls="--", lw=1.6, label=data.short_reference)
        base.only_ticks(axis, range(len(values)), [str(value) for value in values])
        axis.set(xlabel=name, title=size if len(panels) > 1 else "")
    base.ratio_limits(axes[0], rows)
    axes[0].set_ylabel(f"speed relative to\n{data.short_reference}, 95 % interval")
    return base.legend_below(figure, axes[0])


def draw(data: FigureData) -> Figure:
    """Lines over a log2 size axis, a row of panels per measure, in it one per dtype; or over the parameter `x`."""
    if data.figure.x is not None:
        return _over_parameter(data, data.figure.x)
    rows = data.some(data.against_others, "result to draw over the size")
    fields, sizes, reference = data.sweep.problem.size_fields, data.sweep.sizes, data.reference_name
    # A name longer than the axis stands in the legend alone.
    short = " its baseline" if data.sweep.reference.kernel else "\nthe reference"
    short = f"\n{reference}" if len(reference) <= _LONGEST_NAME else short
    measures = {"speedup": f"speed relative to{short}"}
    # Against a library the rate is the answer, but it spans decades over the sizes: the ratio stands below it.
    if not data.sweep.reference.kernel:
        measures = dict([rate_column(rows) or ("median_us", "time (µs)")]) | measures
    # M, N or K where only that one changes, else the first.
    field = next((name for name in fields if len({size[name] for size in sizes}) > 1), fields[0])
    together = len(fields) > 1 and all(len(set(size.values())) == 1 for size in sizes)
    per_dtype = {dtype: own for dtype in data.sweep.dtypes if len(own := rows[rows["dtype"] == dtype])}
    drawn = pd.concat([own[own["variant"].isin(_chosen(own))] for own in per_dtype.values()])
    variants, columns = rows["variant"].nunique(), len(per_dtype)
    # A rung that is slow where it matters may be ahead at another size.
    hidden = f" (the {MOST} of {variants} variants with the highest ratio at any size)"
    what = "speed over size" + (hidden if variants > MOST * columns else "")
    labels = [data.names[variant] for variant in _chosen(rows)]
    legend_rows = math.ceil((len(labels) + 2) / base.legend_columns(labels))
    height = (2.4 + 2.2 * len(measures) if len(measures) > 1 else 4.4) + 0.24 * legend_rows
    figure, axes = base.canvas(data, height, what, columns=columns, rows=len(measures), sharex="col")
    panels = itertools.product(measures, per_dtype.items())
    for axis, (column, (dtype, own)) in zip(axes, panels, strict=True):
        _panel(axis, data, own, column, field, _MOST_TICKS // columns)
        if column == "speedup":
            base.ratio_limits(axis, drawn)
        else:
            _rate_limits(axis, own[own["variant"].isin(drawn["variant"])][column])
        axis.set_title(dtype if columns > 1 and axis in axes[:columns] else "")
    for axis, unit in zip(axes[::columns], measures.values(), strict=True):
        axis.set_ylabel(unit)
    for axis in axes[-columns:]:
        axis.set_xlabel(" = ".join(name.upper() for name in fields) if together else field)
    return base.legend_below(figure, axes[0])
