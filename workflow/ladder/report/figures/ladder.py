"""Ladder: what each rung gains over the rung that it changes, and beside it how fast it then is."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ladder.report.figures import base, style
from ladder.report.ladder_steps import (
    Step,
    changed_by_all,
    changed_rungs,
    path_to_fastest,
    steps,
)
from ladder.report.markdown import number
from ladder.report.titles import change_label, rival
from ladder.results.statistics import at_size, rate_column, records
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import gain

_ROW, _TALLEST = 0.27, 7.0  # inches from row to row, and of all rows
_LINE = 0.13  # inches of a line of a label, where it has more than one
_RATES = 1.24  # where rates end beside the speeds, in widths of their axes
Row = Mapping[str, Any]


def draw(data: FigureData) -> Figure:
    """Bars of gains in the order of the rungs; where all change one rung, what costs most first."""
    shown = at_size(data.timings[data.timings["regime"] == data.regime], data.size)
    data.some(data.here)
    by_variant = {row["variant"]: row for row in records(shown)}
    rows = [
        by_variant[entry.variant.id]
        for entry in data.sweep.entries
        if entry.variant.id in by_variant
    ]
    known = {step.row["variant"]: step for step in steps(data) if step.gain.known}
    if data.sweep.tuning or not known:
        return _ranked(data, rows)
    if changed_by_all(data):
        gains = {variant: step.gain.value for variant, step in known.items()}
        rows.sort(key=lambda row: gains.get(row["variant"], 0))
    return _ladder(data, known, rows)


def _ladder(data: FigureData, known: Mapping[str, Step], rows: Sequence[Row]) -> Figure:
    path = {entry.variant.id for entry in path_to_fastest(data)}
    base_of_all = changed_by_all(data)
    labels = _labels(data, rows, path)
    height, size = _shape(labels)
    shape: dict[str, Any] = {
        "columns": 2,
        "sharey": True,
        "gridspec_kw": {"width_ratios": [2.2, 1]},
    }
    figure, (gains, speeds) = base.canvas(data, 1.75 + height, data.size_text, **shape)
    base.name_rows(gains, labels, size)
    speeds.grid(axis="y", visible=False)
    rate = rate_column(data.here)
    colors = set[str]()
    for place, (row, label) in enumerate(
        zip(rows, gains.get_yticklabels(), strict=True)
    ):
        variant = row["variant"]
        on_path = variant in path
        ink = style.INK if on_path else style.MUTED
        label.set(color=ink, fontweight="bold" if on_path else "normal")
        if row["status"] != "ok":
            _no_result(gains, place, row)
            continue
        if variant in known:
            verdict = base.VERDICTS[known[variant].gain.verdict]
            # Where no path leads on, nothing lies beside it.
            color = (
                verdict if on_path or base_of_all else style.PALE.get(verdict, verdict)
            )
            _draw_gain(gains, place, known[variant], color, on_path)
            colors.add(color)
        base.interval(speeds, place, row, ink, ms=4.5 if on_path else 3.5)
        if rate and row[rate[0]] is not None:
            _at_right(speeds, number(row[rate[0]], 3), (_RATES, place), "data")
    reach = [end for step in known.values() for end in astuple(step.gain.measured)]
    low, high = min(*reach, 1.0), max(*reach, 1.0)
    room = (high / low) ** 0.16  # for the words beside the longest bars
    base.factor_axis(gains, low / room, high * room)
    gains.axvline(1, color=style.REFERENCE, lw=1.0, zorder=2.5)
    _speed_axis(speeds, rows, ("speedup",), most=4)
    above = "gain over the bold rung above it,\nor over the one named: (on …)"
    gains.set_xlabel(
        f"speed with the change, over that of “{data.names[base_of_all]}”"
        if base_of_all
        else above
    )
    speeds.set_xlabel(f"speed relative to {rival(data)}")
    if rate:
        _at_right(speeds, rate[1], (_RATES, 1), "axes fraction", offset=(0, 6))
    _explain_colors(figure, colors)
    return figure


def _ranked(data: FigureData, rows: Sequence[Row]) -> Figure:
    """Rungs that build on none: the fastest first."""
    done = sorted(
        (row for row in rows if row["status"] == "ok"), key=lambda row: -row["speedup"]
    )
    ranking = [*done, *(row for row in rows if row["status"] != "ok")]
    labels = [base.broken(data.names[row["variant"]]) for row in ranking]
    height, size = _shape(labels)
    figure, (axis,) = base.canvas(data, 1.5 + height, data.size_text)
    rate = rate_column(data.here)
    for place, row in enumerate(ranking):
        if row["status"] != "ok":
            _no_result(axis, place, row)
            continue
        base.interval(axis, place, row, base.VERDICTS[gain(row).verdict])
        if rate and row[rate[0]] is not None:
            text = (
                f"{change_label(row['speedup'])}, {number(row[rate[0]], 3)} {rate[1]}"
            )
            base.note(axis, text, (1.02, place), xycoords=("axes fraction", "data"))
    _speed_axis(axis, rows, ("speedup", "predicted"))
    base.name_rows(axis, labels, size)
    axis.set_xlabel(f"speed relative to {rival(data)}\n{base.RANGES}")
    return figure


def _labels(data: FigureData, rows: Sequence[Row], path: set[str]) -> list[str]:
    """Names of rungs, with the rung that one changes where that is not the one above it; a branch is indented."""
    changed = changed_rungs(data, [row["variant"] for row in rows])
    labels = list[str]()
    for variant in (row["variant"] for row in rows):
        on = f" (on {changed[variant]})" if variant in changed else ""
        label = base.broken(data.names[variant] + on)
        labels.append(
            label
            if variant in path
            else "\n".join(f"{line}    " for line in label.split("\n"))
        )
    return labels


def _shape(labels: Sequence[str]) -> tuple[float, float]:
    """Height of all rows in inches and size of their labels in points, of which some may have more than one line."""
    lines = max(label.count("\n") + 1 for label in labels)
    tallest = _ROW if lines == 1 else _LINE * (lines + 1)
    height = min(tallest * len(labels), _TALLEST)
    return height, min(9.5, 42 * height / len(labels) / lines)


def _draw_gain(axis: Axes, place: int, step: Step, color: str, on_path: bool) -> None:
    """A bar from 1 to the gain, its interval, and the gain in words."""
    measured, elsewhere = step.gain.measured, step.gain.predicted
    axis.barh(
        place,
        measured.value - 1,
        left=1,
        height=0.62 if on_path else 0.44,
        color=color,
        zorder=2,
    )
    axis.hlines(place, measured.low, measured.high, color=style.INK, lw=2.2, zorder=4)
    ends = [1.0, *astuple(measured)]
    if elsewhere.known:
        axis.hlines(
            place, elsewhere.low, elsewhere.high, color=style.INK, lw=0.8, zorder=3
        )
        ends += [elsewhere.low, elsewhere.high]
    look: dict[str, Any] = (
        {"fontsize": 9, "color": style.INK} if on_path else {"fontsize": 8}
    )
    text = change_label(measured.value)
    if measured.value >= 1:
        base.note(axis, text, (max(ends), place), (5, 0), ha="left", **look)
    else:
        base.note(axis, text, (min(ends), place), (-5, 0), ha="right", **look)


def _no_result(axis: Axes, place: int, row: Row) -> None:
    base.note(axis, f" no result: {row['status']}", (1, place), style="italic")


def _at_right(
    axis: Axes,
    text: str,
    at: tuple[float, float],
    upright: str,
    offset: tuple[float, float] = (0, 0),
) -> None:
    base.note(axis, text, at, offset, xycoords=("axes fraction", upright), ha="right")


def _speed_axis(
    axis: Axes, rows: Sequence[Row], names: Sequence[str], most: int = 8
) -> None:
    """From the slowest to the fastest, by the ends of the intervals of these `names`, and to the reference."""
    columns = [f"{name}_{end}" for name in names for end in ("low", "high")]
    ends = [row[column] for row in rows if row["status"] == "ok" for column in columns]
    known = [1.0, *(end for end in ends if end is not None)]
    base.factor_axis(axis, min(known), max(known), most=most)
    base.at_reference(axis)


def _explain_colors(figure: Figure, colors: set[str]) -> None:
    names = {style.AHEAD: "faster", style.BEHIND: "slower", style.TIE: "tie"}
    names |= {
        pale: f"{names[color]}, beside the path" for color, pale in style.PALE.items()
    }
    handles = [
        Patch(color=color, label=name)
        for color, name in names.items()
        if color in colors
    ]
    look: dict[str, Any] = {"title": base.RANGES, "title_fontsize": 9, "frameon": False}
    look["ncols"] = 3 if len(handles) <= 3 else 2
    figure.legend(handles=handles, loc="outside lower center", **look)
