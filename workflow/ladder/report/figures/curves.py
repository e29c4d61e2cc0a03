"""Curves: speed relative to the reference over the size or over a parameter, at most six lines a panel.

Where variants have different baselines the rate is drawn instead, for ratios over two baselines do not compare. What is
bound by memory and held against a copy is drawn as the share of the memory's peak rate.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.model.cell import count_label
from ladder.model.problem import COPY
from ladder.report.figures import base, style
from ladder.report.figures.lines import facets, few_lines, over_parameter, over_size, spilled, with_values
from ladder.report.markdown import number
from ladder.results import statistics as stats
from ladder.results.statistics import rate_column, records
from ladder.results.sweep_data import FigureData

_OCTAVES = 16  # from this ratio of the largest to the smallest x on, the axis counts octaves
_SHOWN = 0.85  # of the slowest of the fastest at any size: what is slower still leaves the axis
_NEAR = 1.25  # factor within which the axis reaches to 1
_TICKS = 12  # sizes on an axis
BELOW = "below"
"""Id of the words at what has left an axis below."""
_MARKED = 2  # lines below the axis at one place that have a number each
_WORDS = 26  # characters of a line of a name at the end of a curve


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


def _below(axis: Axes, rows: pd.DataFrame, colors: dict[str, str], places: dict[Any, float]) -> None:
    """Marks at the edge for what has left the axis below, with its value, or with the range of the values of many."""
    low, last = axis.get_ylim()[0], max(places.values())
    for x, gone in rows[rows["value"] < low].sort_values("value").groupby("x"):
        at, many = places[x], len(gone) > _MARKED
        side: dict[str, Any] = {
            "ha": "right" if at == last else "left",
            "textcoords": "offset points",
            "zorder": 5,
            "gid": BELOW,
            "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.3, "alpha": 0.8},
        }
        for place, row in enumerate(records(gone)):
            color = colors[row["line"]]
            axis.plot(
                [at],
                [low],
                ls="",
                marker="v",
                ms=6,
                color=style.MUTED if many else color,
                clip_on=False,
                zorder=5,
            )
            if not many:
                offset = (-7 if at == last else 7, 3 + 10 * place)
                axis.annotate(number(row["value"], 2), (at, low), offset, fontsize=8.5, color=color, **side)
        if many:
            ends = " to ".join(number(value, 2) for value in (gone["value"].min(), gone["value"].max()))
            axis.annotate(
                ends, (at, low), (-7 if at == last else 7, 3), fontsize=8.5, color=style.MUTED, **side
            )


def _wrapped(text: str) -> str:
    words, lines = text.split(" "), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= _WORDS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines[:3])


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(set(values), key=lambda value: (isinstance(value, str), value))


def draw(data: FigureData) -> Figure:
    """A panel per dtype over the size; over a parameter one per size, dtype or value of `hue`."""
    name = data.figure.x or ("radius" if data.figure.kind == "stencil" else None)
    lines = facets(data, over_parameter(data, name)) if name else over_size(data)
    cells = lines.cells
    mixed = name is None and not stats.comparable(cells)
    rate = rate_column(cells)
    column = rate[0] if mixed and rate else "speedup"
    if name is None and {*cells["reference"]} == {COPY} and cells["memory_fraction"].notna().all():
        column = "memory_fraction"
    cells = with_values(cells, column).assign(spills=spilled(data, cells) if name else False)
    panels = list(dict.fromkeys(cells["panel"]))
    drawn, names, what = few_lines(cells, len(style.PALETTE), spread=column != "speedup")
    colors = dict(zip(names, style.PALETTE, strict=False))
    if name:
        what = ", ".join(filter(None, [what, data.size_text if data.figure.kind == "stencil" else ""]))
    values = _ordered(drawn["x"])
    scale, places = _places(values) if name else ("log", {value: value for value in values})
    columns, rows_of = _grid(len(panels), name is not None)
    tall = 3.4 if rows_of == 1 else 2.5
    height = 1.0 + tall * rows_of + (0.0 if columns == 1 else 0.25 * math.ceil(len(names) / 2)) + 0.3
    figure, axes = base.canvas(
        data, height, f"{what}{lines.note}".strip("; "), columns=columns, rows=rows_of, sharey=bool(name)
    )
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes, panels, strict=False):
        own = drawn[drawn["panel"] == panel]
        _panel(axis, own, colors, places, joined=not name)
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
        _below(axis, own, colors, places)
        _x_ticks(axis, cells[cells["panel"] == panel], values, places, scale, name, rate, columns)
        axis.set_title(panel if len(panels) > 1 else "", fontsize=10.5)
    if name is None:  # names stand at the ends of lines, which may lie at sizes that a panel does not have
        ends = [end for axis in axes[: len(panels)] for end in axis.get_xlim()]
        for axis in axes[: len(panels)]:
            axis.set_xlim(min(ends), max(ends))
    unit = {
        "speedup": f"speed relative to\n{_wrapped(lines.reference)}",
        "memory_fraction": "share of the\nmemory's peak rate",
    }.get(column, "share of the speed\nof the fastest")
    for place in range(0, len(panels), columns):
        axes[place].set_ylabel(unit)
    spills = bool(drawn["spills"].any())
    one = names == [""]  # nothing tells lines apart
    if (columns > 1 and not one) or spills:
        _legend(figure, axes, lines.about, spills)
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
                lines.reference if column == "speedup" else "",
            )
    return figure


def _grid(panels: int, of_parameter: bool) -> tuple[int, int]:
    """Columns and rows of panels: up to three over the size stand below one another, others side by side."""
    columns = min(panels, 4)
    if panels == 1 or (panels <= 3 and not of_parameter):
        columns = 1
    elif panels == 4 and not of_parameter:
        columns = 2
    return columns, math.ceil(panels / columns)


def _legend(figure: Figure, axes: Sequence[Axes], title: str, spills: bool) -> None:
    """Every line of any panel once, below them."""
    if spills:
        hollow: dict[str, Any] = {"marker": "o", "color": style.MUTED, "mfc": "white"}
        axes[0].plot([], [], ls="", label="hollow: registers spill to local memory", **hollow)
    found = [axis.get_legend_handles_labels() for axis in axes]
    lines = {label: handle for own in found for handle, label in zip(*own, strict=True)}
    look: dict[str, Any] = {"title": title, "title_fontsize": 10.5, "fontsize": 9, "frameon": False}
    look["ncols"] = base.legend_columns(list(lines))
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", **look)


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
