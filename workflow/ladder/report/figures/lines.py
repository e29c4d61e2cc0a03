"""What curves show: lines over the size or over a parameter, their values, and which of them when there are many."""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ladder.model.cell import size_label
from ladder.report.titles import axis_words, differing, rival, said
from ladder.results import statistics as stats
from ladder.results.statistics import at_size, parameter
from ladder.results.sweep_data import FigureData, distinguishing, shown_value

MOST = 6
"""Lines of a panel."""


@dataclass(frozen=True)
class Lines:
    """Cells to draw: `cells` have `panel`, `line` and `x`; `about` names the axis of x, `reference` what 1 is."""

    cells: pd.DataFrame
    about: str
    reference: str
    note: str = ""


def over_size(data: FigureData) -> Lines:
    """A line a variant, a panel a dtype. Variants with a baseline that most have not are left out, as `note` says."""
    rows, note = data.some(data.against_others, "result to draw over the size"), ""
    apart = [variant for variant in data.own_baselines if variant in {*rows["variant"]}]
    compared = rows[~rows["variant"].isin(apart)]
    if not stats.comparable(compared):  # then baselines are lines like others
        rows = data.ok
    elif len(compared):
        rows = compared
        note = "".join(
            f"; without “{data.names[variant]}”, whose baseline is slower"
            for variant in apart
        )
    fields, sizes = data.sweep.problem.size_fields, data.sweep.sizes
    changing = [field for field in fields if len({size[field] for size in sizes}) > 1]
    field, about = (changing or fields)[0], (changing or fields)[0]
    if len(fields) > 1 and all(len({*size.values()}) == 1 for size in sizes):
        about = " = ".join(name.upper() for name in fields)
    names = [
        data.names[variant].removesuffix(f" ({dtype})")
        for variant, dtype in zip(rows["variant"], rows["dtype"], strict=True)
    ]
    short = differing(names)
    cells = rows.assign(
        panel=rows["dtype"],
        line=[short[name] for name in names],
        x=rows[field].astype(float),
    )
    return Lines(cells, about, _reference(data, rows), note)


def _reference(data: FigureData, rows: pd.DataFrame) -> str:
    """The rung that all rows are timed against, where that is one, else what people call the reference."""
    references = [*rows["reference"].unique()]
    if data.has_rungs and len(references) == 1 and references[0] in data.names:
        return f"“{data.names[references[0]]}”"
    return rival(data)


def over_parameter(data: FigureData, name: str) -> Lines:
    """A line for what differs beside the parameter, a panel for each size and dtype."""
    stencil = data.figure.kind == "stencil"
    rows = data.some(
        data.here if stencil else data.ok,
        "" if stencil else "result to draw over a parameter",
    )
    rows = rows.assign(
        x=parameter(rows, name), given=rows["params"].map(json.loads)
    ).dropna(subset="x")
    data.some(rows, f"variant with the parameter {name}")
    reference = data.sweep.reference
    if (
        stencil and reference.kernel is not None
    ):  # not the very variant that the others are timed against
        rows = rows[rows["variant"] != rows["reference"]]
    sizes = [data.size] if stencil or data.figure.size is not None else data.sweep.sizes
    panels = [at_size(rows, size).assign(panel=size_label(size)) for size in sizes]
    rows = pd.concat(panels, ignore_index=True)
    if rows["panel"].nunique() == 1:
        rows["panel"] = rows["dtype"]
    rows["line"] = _beside(rows, name, data.figure.hue if stencil else None)
    # Of variants that a line does not tell apart the fastest.
    best = rows.loc[sorted(rows.groupby(["panel", "line", "x"])["speedup"].idxmax())]
    return Lines(
        best,
        axis_words(data, name),
        rival(data) if reference.kernel is None else _fixed(data),
    )


def _beside(rows: pd.DataFrame, name: str, hue: str | None) -> "pd.Series[str]":
    """What tells variants apart beside the parameter `name`, or of that `hue` alone. Columns: kernel, given."""
    several = rows["kernel"].nunique() > 1
    names = dict[Any, str]()
    for kernel, given in rows.groupby("kernel")["given"]:
        others = [
            {other: params[other] for other in params if other != name}
            for params in given
        ]
        needed = [other for other in distinguishing(others) if hue in (None, other)]
        for index, params in given.items():
            words = [
                said(other, shown_value(other, params))
                for other in needed
                if other in params
            ]
            names[index] = ", ".join([str(kernel)] * several + words)
    return pd.Series(names).reindex(rows.index)


def _fixed(data: FigureData) -> str:
    """The reference's kernel, where a sweep has another one, and the parameters that it fixes."""
    reference = data.sweep.reference
    name = reference.kernel.name if reference.kernel else ""
    others = {entry.variant.kernel.name for entry in data.sweep.entries} - {name}
    return ", ".join(
        [name] * bool(others)
        + [f"{of} {value}" for of, value in reference.params.items()]
    )


def facets(data: FigureData, lines: Lines) -> Lines:
    """The same lines in more panels where one would have too many: a panel for each value of the parameter `hue`."""
    hue, cells = data.figure.hue, lines.cells
    if hue is None or cells.groupby("panel")["line"].nunique().max() <= MOST:
        return lines
    cells = cells.assign(
        value=parameter(cells, hue), order=cells["dtype"].map(data.sweep.dtypes.index)
    )
    cells = cells.sort_values(["order", "value"], kind="stable")
    of_value = [f"{hue} {value}" for value in cells["value"]]
    names = [
        line.replace(f", {value}", "").replace(value, "").strip(", ")
        for line, value in zip(cells["line"], of_value, strict=True)
    ]
    cells["line"] = pd.Series(names, cells.index).where(
        lambda line: line != "", cells["kernel"]
    )
    several = cells["panel"].nunique() > 1
    cells["panel"] = (cells["panel"] + ", " if several else "") + pd.Series(
        of_value, cells.index
    )
    return replace(lines, cells=cells)


def with_values(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The drawn `value` with its interval `low` to `high`, and `predicted_low` and `predicted_high`.

    Of a rate it is the share of the fastest at that place, and of `memory_fraction` that share.
    Columns: speedup with its ends; of a rate panel, x, the rate, and median_us with its ends.
    """
    if column == "speedup":
        return rows.assign(
            value=rows["speedup"], low=rows["speedup_low"], high=rows["speedup_high"]
        )
    share = rows[column]
    if column != "memory_fraction":
        share = share / rows.groupby(["panel", "x"])[column].transform("max")
    return rows.assign(
        value=share,
        low=share * rows["median_us"] / rows["median_us_high"],
        high=share * rows["median_us"] / rows["median_us_low"],
        predicted_low=math.nan,
        predicted_high=math.nan,
    )


def spilled(data: FigureData, rows: pd.DataFrame) -> "pd.Series[bool]":
    """Whether the variant of each row keeps registers in local memory."""
    local = (
        data.resources.drop_duplicates("variant")
        .set_index("variant")["local_bytes"]
        .astype(float)
    )
    return rows["variant"].map(local).fillna(0) > 0


def few_lines(
    cells: pd.DataFrame, colors: int, spread: bool
) -> tuple[pd.DataFrame, list[str], str]:
    """Cells of at most MOST lines a panel and `colors` in all, names of these lines, and how many there were.

    Columns: panel, line, x, value.
    """
    panels = cells["panel"].nunique()
    most = MOST if panels == 1 else max(2, min(MOST, colors // min(panels, 3)))
    names, drawn = dict[str, Any](), list[pd.DataFrame]()
    for _, of_panel in cells.groupby("panel", sort=False):
        wanted = _fastest_lines(of_panel, most, spread)
        for line in wanted:
            if len(names) < colors:
                names.setdefault(line)
        drawn.append(
            of_panel[of_panel["line"].isin([line for line in wanted if line in names])]
        )
    short, every = differing([*names]), cells["line"].nunique()
    what = (
        f"{'' if panels == 1 else 'at most '}{most} of {every} variants"
        if every > len(names)
        else ""
    )
    together = pd.concat(drawn)
    return (
        together.assign(line=together["line"].map(short)),
        [short[name] for name in names],
        what,
    )


def _fastest_lines(rows: pd.DataFrame, most: int, spread: bool) -> list[str]:
    """Lines drawn: those that are the fastest somewhere, the largest x first, then the others from the fastest on.

    With a `spread` the others are from all of the ranking.
    """
    fastest = rows.loc[rows.groupby("x")["value"].idxmax(), "line"]
    ranking = [*rows.sort_values("value", ascending=False)["line"].unique()]
    if spread:
        ranking = [
            ranking[round(place * (len(ranking) - 1) / (most - 1))]
            for place in range(most)
        ]
    else:  # of these the ones with results at most places
        width = rows.groupby("line")["x"].nunique()
        ranking.sort(key=lambda line: -width[line])
    return list(dict.fromkeys([*fastest[::-1], *ranking]))[:most]
