"""What curves show: lines over the size or over a parameter, their values, and which of them when there are many."""

import json
import math
from dataclasses import dataclass
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


def _one_baseline(data: FigureData, rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Rows that compare, and what was left out: variants with a baseline that most have not."""
    apart = [variant for variant in data.own_baselines if variant in set(rows["variant"])]
    kept = rows[~rows["variant"].isin(apart)]
    note = "".join(f"; without “{data.names[one]}”, whose baseline is slower" for one in apart)
    return kept, note if len(kept) else ""


def over_size(data: FigureData) -> Lines:
    rows, note = _one_baseline(data, data.some(data.against_others, "result to draw over the size"))
    if not stats.comparable(rows):  # then baselines are lines like others
        rows, note = data.ok, ""
    fields, sizes = data.sweep.problem.size_fields, data.sweep.sizes
    # M, N or K where only that one changes, else the first.
    field = next((name for name in fields if len({size[name] for size in sizes}) > 1), fields[0])
    together = len(fields) > 1 and all(len(set(size.values())) == 1 for size in sizes)
    names = [
        data.names[one].removesuffix(f" ({dtype})")
        for one, dtype in zip(rows["variant"], rows["dtype"], strict=True)
    ]
    names = list(map(differing(names).__getitem__, names))
    cells = rows.assign(panel=rows["dtype"], line=names, x=rows[field].astype(float))
    return Lines(
        cells, " = ".join(name.upper() for name in fields) if together else field, _named(data, rows), note
    )


def _named(data: FigureData, rows: pd.DataFrame) -> str:
    """What 1 is: the rung that all rows are timed against, where that is one, else as people call it."""
    known = set(rows["reference"])
    return next(
        (f"“{data.names[one]}”" for one in known if len(known) == 1 and data.has_rungs and one in data.names),
        rival(data),
    )


def over_parameter(data: FigureData, name: str) -> Lines:
    """A line for what differs beside the parameter, a panel for each size and dtype."""
    stencil = data.figure.kind == "stencil"
    rows = data.here if stencil else data.ok
    rows = data.some(rows, "" if stencil else "result to draw over a parameter")
    rows = rows.assign(x=parameter(rows, name), given=rows["params"].map(json.loads)).dropna(subset="x")
    data.some(rows, f"variant with the parameter {name}")
    reference = data.sweep.reference
    if stencil and reference.kernel is not None:  # not the very variant that the others are timed against
        rows = rows[rows["variant"] != rows["reference"]]
    wanted = [data.size] if stencil or data.figure.size is not None else data.sweep.sizes
    rows = pd.concat(
        [at_size(rows, size).assign(panel=size_label(size)) for size in wanted], ignore_index=True
    )
    if rows["panel"].nunique() == 1:
        rows = rows.assign(panel=rows["dtype"])
    others: dict[Any, str] = {}
    for kernel, own in rows.groupby("kernel"):
        needed = distinguishing([{one: given[one] for one in given if one != name} for given in own["given"]])
        needed = [one for one in needed if not stencil or data.figure.hue in (None, one)]
        for index, given in own["given"].items():
            words = [said(one, shown_value(one, given)) for one in needed if one in given]
            others[index] = ", ".join([str(kernel)] * (rows["kernel"].nunique() > 1) + words)
    rows = rows.assign(line=pd.Series(others).reindex(rows.index))
    # Of variants that a line does not tell apart the fastest.
    best = rows.loc[sorted(rows.groupby(["panel", "line", "x"])["speedup"].idxmax())]
    unit = axis_words(data, name)
    return Lines(best, unit, rival(data) if reference.kernel is None else _fixed(data))


def _fixed(data: FigureData) -> str:
    """The reference's kernel, where a sweep has another one, and the parameters that it fixes."""
    reference = data.sweep.reference
    kernels = {entry.variant.kernel.name for entry in data.sweep.entries}
    name = reference.kernel.name if reference.kernel else ""
    return ", ".join(
        [name] * (kernels != {name}) + [f"{of} {value}" for of, value in reference.params.items()]
    )


def facets(data: FigureData, lines: Lines) -> Lines:
    """The same lines in more panels where one would have too many: a panel for each value of the parameter `hue`."""
    hue = data.figure.hue
    cells = lines.cells
    if hue is None or cells.groupby("panel")["line"].nunique().max() <= MOST:
        return lines
    values = parameter(cells, hue)
    several = cells["panel"].nunique() > 1
    panel = [
        f"{own + ', ' if several else ''}{hue} {value}"
        for own, value in zip(cells["panel"], values, strict=True)
    ]
    line = [
        text.replace(f", {hue} {value}", "").replace(f"{hue} {value}", "").strip(", ") or str(kernel)
        for text, value, kernel in zip(cells["line"], values, cells["kernel"], strict=True)
    ]
    cells = cells.assign(panel=panel, line=line, value=values)
    cells = cells.sort_values("value", kind="stable").drop(columns="value")
    cells = cells.sort_values("dtype", key=lambda own: own.map(data.sweep.dtypes.index), kind="stable")
    return Lines(cells, lines.about, lines.reference, lines.note)


def _fastest_lines(rows: pd.DataFrame, most: int, spread: bool) -> list[str]:
    """Lines drawn: those that are the fastest somewhere, the largest x first, then the others from the fastest on.

    With a `spread` the others are from all of the ranking.
    """
    by_x = list(rows.loc[rows.groupby("x")["value"].idxmax(), "line"])
    rest = list(dict.fromkeys(rows.sort_values("value", ascending=False)["line"]))
    if spread:
        rest = [rest[round(place * (len(rest) - 1) / (most - 1))] for place in range(most)]
    else:  # of these the ones with results at most places
        width = rows.groupby("line")["x"].nunique()
        rest.sort(key=lambda line: -width[line])
    return list(dict.fromkeys([*reversed(by_x), *rest]))[:most]


def with_values(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The drawn `value` with its interval `low` to `high`, and `predicted_low` and `predicted_high`.

    Of a rate it is the share of the fastest at that place, and of `memory_fraction` that share.
    Columns: speedup with its ends; of a rate panel, x, the rate, and median_us with its ends.
    """
    if column == "speedup":
        return rows.assign(value=rows["speedup"], low=rows["speedup_low"], high=rows["speedup_high"])
    work = rows[column] * rows["median_us"]
    fastest = rows.groupby(["panel", "x"])[column].transform("max")
    most = 1.0 if column == "memory_fraction" else fastest
    none = {"predicted_low": math.nan, "predicted_high": math.nan}
    ends = {"low": work / rows["median_us_high"] / most, "high": work / rows["median_us_low"] / most}
    return rows.assign(value=rows[column] / most, **ends, **none)


def spilled(data: FigureData, rows: pd.DataFrame) -> "pd.Series[bool]":
    known = data.resources.drop_duplicates("variant").set_index("variant")["local_bytes"].astype(float)
    return rows["variant"].map(known).fillna(0) > 0


def few_lines(cells: pd.DataFrame, colors: int, spread: bool) -> tuple[pd.DataFrame, list[str], str]:
    """Cells of at most MOST lines a panel and `colors` in all, names of these lines, and how many there were.

    Columns: panel, line, x, value.
    """
    panels = list(dict.fromkeys(cells["panel"]))
    most = MOST if len(panels) == 1 else max(2, min(MOST, colors // min(len(panels), 3)))
    names, kept = list[str](), list[pd.DataFrame]()
    for panel in panels:
        own = cells[cells["panel"] == panel]
        chosen = [line for line in _fastest_lines(own, most, spread) if line in names or len(names) < colors]
        names += [line for line in chosen if line not in names]
        kept.append(own[own["line"].isin(chosen)])
    short, every = differing(names), cells["line"].nunique()
    drawn = pd.concat(kept)
    drawn = drawn.assign(line=drawn["line"].map(short))
    return (
        drawn,
        [short[line] for line in names],
        f"{'' if len(panels) == 1 else 'at most '}{most} of {every} variants" * (every > len(names)),
    )
