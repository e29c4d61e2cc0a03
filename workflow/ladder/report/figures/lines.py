"""What curves show: lines over the size or over a parameter, their values, and which of them when there are many."""

import json
import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pandas as pd
from pandas import DataFrame

from ladder.model.cell import size_label
from ladder.model.problem import COPY
from ladder.report.figures.style import PALETTE
from ladder.report.titles import axis_words, rival, said
from ladder.results.statistics import (
    comparable,
    parameter,
    rate_column,
    records,
    size_of,
)
from ladder.results.sweep_data import FigureData, distinguishing, shown_value

MOST = 6
"""Lines of a figure, unless more are the fastest somewhere."""


@dataclass(frozen=True)
class Lines:
    """Cells to draw: `cells` have `panel`, `line` and `x`; `about` names the axis of x, `reference` what 1 is."""

    cells: DataFrame
    about: str
    reference: str
    note: str


def over_size(data: FigureData) -> Lines:
    """A line a variant, a panel a dtype. Variants with a baseline that most have not are left out, as `note` says."""
    rows = data.some(data.against_others, "result to draw over the size")
    apart = rows["variant"].isin(data.own_baselines)
    note = ""
    if not comparable(rows[~apart]):  # then baselines are lines like others
        rows = data.ok
    elif apart.any() and not apart.all():
        variants = rows[apart]["variant"].unique()
        names = ", ".join(f"“{data.names[variant]}”" for variant in variants)
        note = f"without {names}, whose baseline is slower"
        rows = rows[~apart]
    field, about = _extent(data)
    lines = rows["rung"].fillna(what_differs(rows, set()))
    rows = rows.assign(
        panel=rows["dtype"],
        line=lines.mask(lines == "", rows["kernel"]),
        x=rows[field].astype(int),
    )
    return Lines(rows, about, _reference(data, rows), note)


def _extent(data: FigureData) -> tuple[str, str]:
    """The field of sizes that changes, and what the axis is called: M = N = K where these are alike."""
    sizes = DataFrame(data.sweep.sizes)
    fields = sizes.columns
    if len(fields) > 1 and (sizes.nunique(axis="columns") == 1).all():
        return str(fields[0]), " = ".join(fields.str.upper())
    field = str(sizes.nunique().gt(1).idxmax())
    return field, field


def _reference(data: FigureData, rows: DataFrame) -> str:
    """What people call the reference, or the name of the one variant that all rows are timed against."""
    if data.sweep.reference.kernel is None:
        return rival(data)
    name, *others = rows["reference"].unique()
    if name in data.names and not others:
        return f"“{data.names[name]}”"
    return data.reference_name


def over_parameter(data: FigureData, name: str) -> Lines:
    """A line for what else differs, a panel for each dtype, size and value of the parameter `hue`."""
    hue = data.figure.hue
    rows = data.ok if data.figure.size is None else data.here
    rows = data.some(rows, "result to draw over a parameter")
    rows = rows.assign(x=parameter(rows, name))
    rows = data.some(
        rows.dropna(subset="x"),
        f"variant with the parameter {name}",
    )
    panels = DataFrame({"dtype": rows["dtype"]})
    panels["size"] = [size_label(size_of(row)) for row in records(rows)]
    if hue:
        panels[hue] = [said(hue, value) for value in parameter(rows, hue)]
    varying = panels.columns[panels.nunique() > 1]
    rows["panel"] = panels[varying].agg(", ".join, axis="columns")
    rows["line"] = what_differs(rows, {name, hue})
    # Of variants that a line does not tell apart the fastest.
    places = rows.groupby(["panel", "line", "x"], sort=False)
    rows = rows.loc[places["speedup"].idxmax()]
    note = "" if "size" in varying else data.size_text
    return Lines(
        rows,
        axis_words(data, name),
        _reference(data, rows),
        note,
    )


def what_differs(rows: DataFrame, shown: AbstractSet[str | None]) -> "pd.Series[str]":
    """What tells the variants of rows apart beside the parameters `shown`."""
    kernels = rows["params"].map(json.loads).groupby(rows["kernel"])
    names = {}
    for kernel, of_kernel in kernels:
        for params in of_kernel:
            for name in shown & {*params}:
                del params[name]
        needed = distinguishing([*of_kernel])
        for index, params in of_kernel.items():
            words = [kernel] if len(kernels) > 1 else []
            for name in needed:
                if name in params:
                    words.append(said(name, shown_value(name, params)))
            names[index] = ", ".join(words)
    return pd.Series(names)


def drawn_column(lines: Lines, of_parameter: bool) -> tuple[str, str]:
    """The column of timings.csv that is drawn, and what its axis is called.

    What is bound by memory and held against a copy is drawn as the share of the memory's peak rate, and as a share of
    the fastest where variants have different baselines, for ratios over two baselines do not compare.
    """
    cells = lines.cells
    speed = "speedup", f"speed relative to {lines.reference}"
    if of_parameter:
        return speed
    references = {*cells["reference"]}
    if references == {COPY} and cells["memory_fraction"].notna().all():
        return "memory_fraction", "share of the memory's peak rate"
    rate = rate_column(cells)
    if rate is None or comparable(cells):
        return speed
    return rate[0], "share of the speed of the fastest"


def with_values(rows: DataFrame, column: str) -> DataFrame:
    """The drawn `value` with its interval `low` to `high`, and `predicted_low` and `predicted_high` of a speed-up.

    Columns: that one; speedup with its ends; median_us with its ends.
    """
    value = rows[column]
    if column == "speedup":
        return rows.assign(
            value=value,
            low=rows["speedup_low"],
            high=rows["speedup_high"],
        )
    if column != "memory_fraction":
        value = value / value.groupby([rows["panel"], rows["x"]]).transform("max")
    return rows.assign(
        value=value,
        low=value * rows["median_us"] / rows["median_us_high"],
        high=value * rows["median_us"] / rows["median_us_low"],
        predicted_low=math.nan,
        predicted_high=math.nan,
    )


def spilled(data: FigureData, rows: DataFrame) -> "pd.Series[bool]":
    """Whether the variant of each row keeps registers in local memory."""
    variants = data.resources.groupby("variant")
    local_bytes = rows["variant"].map(variants["local_bytes"].first())
    return local_bytes.astype(float) > 0


def chosen_lines(cells: DataFrame) -> list[str]:
    """The lines that are the fastest somewhere, the largest x first; up to MOST those with the most results.

    Columns: panel, line, x, value.
    """
    places = cells.groupby(["panel", "x"])
    winners = cells.loc[places["value"].idxmax()]
    winners = winners.sort_values("x", ascending=False, kind="stable")
    fastest = winners["line"].unique()
    ranking = cells.groupby("line")["value"].agg(["size", "max"])
    ranking = ranking.sort_values(["size", "max"], ascending=False)
    lines = dict.fromkeys([*fastest, *ranking.index])
    most = max(MOST, len(fastest))
    return [*lines][: min(most, len(PALETTE))]
