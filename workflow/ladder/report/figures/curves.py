"""Curves: speed relative to the reference over the size or over a parameter, at most six lines a panel.

Where variants have different baselines the rate is drawn instead, for ratios over two baselines do not compare.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.model.cell import count_label, size_label
from ladder.report.figures import base, style
from ladder.report.markdown import figure as number
from ladder.report.messages import axis_words, differing, rival, said
from ladder.report.sweep_data import FigureData, distinguishing, shown_value
from ladder.results import statistics as stats
from ladder.results.statistics import at_size, parameter, rate_column, records

MOST = 6
_NAMES = len(style.PALETTE)  # lines of all panels together: each has a colour of its own
_OCTAVES = 16  # from this ratio of the largest to the smallest x on, the axis counts octaves
_SHOWN = 0.85  # of the slowest of the fastest at any size: what is slower still leaves the axis
_NEAR = 1.25  # factor within which the axis reaches to 1
_TICKS = 12  # sizes on an axis
_WORDS = 26  # characters of a line of a name at the end of a curve


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


def _over_size(data: FigureData) -> Lines:
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
    return Lines(cells, " = ".join(name.upper() for name in fields) if together else field, rival(data), note)


def _over_parameter(data: FigureData, name: str) -> Lines:
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


def _chosen(rows: pd.DataFrame, most: int, spread: bool) -> list[str]:
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


def _value(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The drawn `value` with its interval `low` to `high`, and `predicted_low` and `predicted_high`.

    Of a rate it is the share of the fastest at that place.
    """
    if column == "speedup":
        return rows.assign(value=rows["speedup"], low=rows["speedup_low"], high=rows["speedup_high"])
    work = rows[column] * rows["median_us"]
    most = rows.groupby(["panel", "x"])[column].transform("max")
    none = {"predicted_low": math.nan, "predicted_high": math.nan}
    ends = {"low": work / rows["median_us_high"] / most, "high": work / rows["median_us_low"] / most}
    return rows.assign(value=rows[column] / most, **ends, **none)


def _places(values: Sequence[Any]) -> tuple[str, dict[Any, float]]:
    """The scale of an axis of these values, and where each stands on it: its true place where that is legible."""
    numbers = [float(value) for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        return "words", {value: float(place) for place, value in enumerate(values)}
    if min(numbers) > 0 and max(numbers) >= _OCTAVES * min(numbers):
        return "log", dict(zip(values, numbers, strict=True))
    if max(numbers) - min(numbers) <= 3 * len(numbers):
        return "linear", dict(zip(values, numbers, strict=True))
    return "words", {value: float(place) for place, value in enumerate(values)}


def _spilled(data: FigureData, rows: pd.DataFrame) -> "pd.Series[bool]":
    known = data.resources.drop_duplicates("variant").set_index("variant")["local_bytes"].astype(float)
    return rows["variant"].map(known).fillna(0) > 0


def _panel(
    axis: Axes, rows: pd.DataFrame, colors: dict[str, str], places: dict[Any, float], joined: bool
) -> None:
    for line, color in colors.items():
        own = rows[rows["line"] == line]
        if not len(own):
            continue
        own = own.assign(place=own["x"].map(places)).sort_values("place")
        axis.plot(own["place"], own["value"], color=color, lw=1.6 if joined else 0.9, zorder=3, label=line)
        axis.vlines(
            own["place"],
            own["predicted_low"],
            own["predicted_high"],
            color=color,
            lw=0.8,
            alpha=0.6,
            zorder=2.5,
        )
        axis.vlines(own["place"], own["low"], own["high"], color=color, lw=3.0, alpha=0.75, zorder=3)
        for hollow, marks in own.groupby("spills"):
            face = "white" if hollow else color
            axis.plot(
                marks["place"], marks["value"], ls="", marker="o", ms=4.5, color=color, mfc=face, zorder=4
            )


def _limits(axis: Axes, rows: pd.DataFrame, one: bool, shown: float) -> None:
    """The axis shows where lines differ; what is far slower than the fastest leaves it below."""
    best = rows.groupby("x")["value"].max()
    every = [*rows["value"], *rows["low"].dropna(), *rows["high"].dropna(), *rows["predicted_high"].dropna()]
    low = max(min([*every, *rows["predicted_low"].dropna()]), shown * best.min())
    if one and best.min() > _NEAR:  # all the news is above the reference: it is shown from there on
        low = min(every)
    near = one and low / _NEAR < 1 < max(every) * _NEAR
    ends = [low, max(every), *([1.0] if near else [])]
    base.factor_axis(axis, min(ends), max(ends), upright=True)


def _wrapped(text: str) -> str:
    words, lines = text.split(" "), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= _WORDS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines[:3])


def _facets(data: FigureData, lines: Lines) -> Lines:
    """Where a panel would have too many lines, a panel for each value of the parameter that colours would tell."""
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


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(set(values), key=lambda value: (isinstance(value, str), value))


def draw(data: FigureData) -> Figure:
    """A panel per dtype over the size; over a parameter one per size, dtype or value of `hue`."""
    name = data.figure.x or ("k" if data.figure.kind == "stencil" else None)
    lines = _facets(data, _over_parameter(data, name)) if name else _over_size(data)
    cells = lines.cells
    mixed = name is None and not stats.comparable(cells)
    rate = rate_column(cells)
    column = rate[0] if mixed and rate else "speedup"
    cells = _value(cells, column).assign(spills=_spilled(data, cells) if name else False)
    panels = list(dict.fromkeys(cells["panel"]))
    most = MOST if len(panels) == 1 else max(2, min(MOST, _NAMES // min(len(panels), 3)))
    names: list[str] = []
    kept = []
    for panel in panels:
        own = cells[cells["panel"] == panel]
        chosen = [
            line for line in _chosen(own, most, column != "speedup") if line in names or len(names) < _NAMES
        ]
        names += [line for line in chosen if line not in names]
        kept.append(own[own["line"].isin(chosen)])
    drawn = pd.concat(kept)
    short = differing(names)
    drawn, names = drawn.assign(line=drawn["line"].map(short)), [short[line] for line in names]
    colors = dict(zip(names, style.PALETTE, strict=False))
    hidden = cells["line"].nunique() - len(names)
    what = f"at most {most} of {len(names) + hidden} variants" if hidden > 0 else ""
    if name:
        what = ", ".join(filter(None, [what, data.size_text if data.figure.kind == "stencil" else ""]))
    values = _ordered(drawn["x"])
    scale, places = _places(values) if name else ("log", {value: value for value in values})
    columns = 1 if len(panels) <= 3 and not (name and len(panels) > 1) else min(len(panels), 4)
    columns = 2 if columns == 4 and len(panels) in (2, 4) and not name else columns
    rows_of = math.ceil(len(panels) / columns)
    tall = 3.4 if rows_of == 1 else 2.5
    height = 1.0 + tall * rows_of + (0.0 if columns == 1 else 0.25 * math.ceil(len(names) / 2)) + 0.3
    figure, axes = base.canvas(
        data, height, f"{what}{lines.note}".strip("; "), columns=columns, rows=rows_of, sharey=bool(name)
    )
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes, panels, strict=False):
        own = drawn[drawn["panel"] == panel]
        _panel(
            axis,
            own,
            {line: color for line, color in colors.items() if line in set(own["line"])},
            places,
            not name,
        )
        if column == "speedup":
            axis.axhline(1, color=style.REFERENCE, ls="--", lw=1.3, zorder=2)
        if scale == "log":
            axis.set_xscale("log", base=2)
        _limits(
            axis,
            drawn if name else own,
            column == "speedup",
            _SHOWN if name is None and column == "speedup" else 0.0,
        )
        _x_ticks(axis, cells[cells["panel"] == panel], values, places, scale, name, rate, columns)
        axis.set_title(panel if len(panels) > 1 else "", fontsize=10.5)
    unit = (
        f"speed relative to\n{_wrapped(lines.reference)}"
        if column == "speedup"
        else "share of the speed\nof the fastest"
    )
    for place in range(0, len(panels), columns):
        axes[place].set_ylabel(unit)
    if drawn["spills"].any():
        axes[0].plot(
            [],
            [],
            ls="",
            marker="o",
            color=style.MUTED,
            mfc="white",
            label="hollow: registers spill to local memory",
        )
    one = names == [""]  # nothing tells lines apart
    if (columns > 1 and not one) or drawn["spills"].any():
        everyone = {
            label: handle
            for axis in axes
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        look: dict[str, Any] = {
            "ncols": base.legend_columns(list(everyone)),
            "title": lines.about,
            "title_fontsize": 10.5,
        }
        figure.legend(
            everyone.values(), everyone.keys(), loc="outside lower center", frameon=False, fontsize=9, **look
        )
    else:
        below = f"\nbelow: {rate[1]} of the fastest" if rate and not name and columns == 1 else ""
        figure.supxlabel(lines.about + below, fontsize=10.5)
        for axis, panel in zip(axes, panels, strict=False) if not one else ():
            _name_ends(
                axis,
                drawn[drawn["panel"] == panel],
                colors,
                places,
                tall - 0.7,
                rival(data) if column == "speedup" else "",
            )
    return figure


def _x_ticks(
    axis: Axes,
    rows: pd.DataFrame,
    values: Sequence[Any],
    places: dict[Any, float],
    scale: str,
    name: str | None,
    rate: tuple[str, str] | None,
    columns: int,
) -> None:
    if name is None:
        best = rows.loc[rows.groupby("x")["value"].idxmax()].set_index("x") if rate else rows
        shown = values[:: math.ceil(len(values) * columns / _TICKS)]
        labels = [count_label(int(value)) for value in shown]
        if rate and columns == 1:
            known = best[rate[0]]
            labels = [
                f"{label}\n{number(known[value], 3)}" if value in known.index else label
                for label, value in zip(labels, shown, strict=True)
            ]
        base.only_ticks(axis, shown, labels)
        return
    most = 12 if columns == 1 else 16 // columns + 1
    shown = list(values)
    if scale == "log":
        whole = [value for value in values if math.log2(float(value)).is_integer()]
        shown = whole if len(shown) > most else shown
    shown = shown[:: math.ceil(len(shown) / most)]
    base.only_ticks(axis, [places[value] for value in shown], [str(value) for value in shown])


def _name_ends(
    axis: Axes,
    rows: pd.DataFrame,
    colors: dict[str, str],
    places: dict[Any, float],
    inches: float,
    reference: str,
) -> None:
    ends = []
    low = axis.get_ylim()[0]
    for line, own in rows.groupby("line", sort=False):
        last = records(own.assign(place=own["x"].map(places)).sort_values("place"))[-1]
        ends.append((last["place"], max(last["value"], low), _wrapped(str(line)), colors[str(line)]))
    if reference and axis.get_ylim()[0] <= 1 <= axis.get_ylim()[1]:
        ends.append((max(places.values()), 1.0, reference, style.REFERENCE))
    if sum(len(text.splitlines()) for *_, text, _ in ends) > inches * 72 / 11:
        ends = [
            (x, y, text.splitlines()[0] + ("…" if "\n" in text else ""), color) for x, y, text, color in ends
        ]
    base.at_ends(axis, inches, ends)
