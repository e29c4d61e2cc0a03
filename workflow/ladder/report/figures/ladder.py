"""Ladder: what each rung gains over the rung that it changes, and beside it how fast it then is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ladder.report.figures import base, style
from ladder.report.ladder_steps import Step, changed_by_all, changed_rungs, path_to_fastest, steps
from ladder.report.markdown import number
from ladder.report.titles import change_label, rival
from ladder.results.statistics import at_size, rate_column, records
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import gain

_ROW, _TALLEST = 0.27, 7.0  # inches from row to row, and of all rows
_LINE = 0.13  # inches of a line of a label, where it has more than one


def _color(step: Step, main: bool) -> str:
    found = base.VERDICTS[step.gain.verdict]
    return found if main else style.PALE.get(found, found)


def _gain(axis: Axes, place: int, step: Step, main: bool, color: str) -> None:
    """A bar from 1 to the gain, its interval, and the gain in words."""
    gain, elsewhere = step.gain.measured, step.gain.predicted
    axis.barh(place, gain.value - 1, left=1, height=0.62 if main else 0.44, color=color, zorder=2)
    axis.hlines([place], gain.low, gain.high, color=style.INK, lw=2.2, zorder=4)
    ends = [gain.low, gain.high, gain.value]
    if elsewhere.known:
        axis.hlines([place], elsewhere.low, elsewhere.high, color=style.INK, lw=0.8, zorder=3)
        ends += [elsewhere.low, elsewhere.high]
    right = gain.value >= 1
    look: dict[str, Any] = {"xytext": (5 if right else -5, 0), "textcoords": "offset points", "va": "center"}
    look |= {"ha": "left" if right else "right", "fontsize": 9 if main else 8}
    look["color"] = style.INK if main else style.MUTED
    axis.annotate(change_label(gain.value), (max(*ends, 1) if right else min(*ends, 1), place), **look)


def _no_result(axis: Axes, place: int, row: Mapping[str, Any]) -> None:
    look: dict[str, Any] = {"va": "center", "color": style.MUTED, "style": "italic", "fontsize": 9}
    axis.text(1, place, f" no result: {row['status']}", **look)


def _rows(labels: Sequence[str]) -> tuple[float, float]:
    """Height of all rows in inches and size of their labels in points, of which some may have more than one line."""
    lines = max(label.count("\n") + 1 for label in labels)
    tallest = _ROW if lines == 1 else _LINE * (lines + 1)
    height = min(tallest * len(labels), _TALLEST)
    return height, min(9.5, 42 * height / len(labels) / lines)


def _ladder(
    data: FigureData, known: Mapping[str, Step], rows: Mapping[str, Any], order: Sequence[str]
) -> Figure:
    main = {entry.variant.id for entry in path_to_fastest(data)}
    # Where no path leads on, nothing lies beside it.
    one, changed = changed_by_all(data), changed_rungs(data, order)
    labels = [
        base.broken(data.names[variant] + (f" (on {changed[variant]})" if variant in changed else ""))
        for variant in order
    ]
    height, size = _rows(labels)
    shape: dict[str, Any] = {"columns": 2, "sharey": True, "gridspec_kw": {"width_ratios": [2.2, 1]}}
    figure, (gains, speeds) = base.canvas(data, 1.75 + height, data.size_text, **shape)
    colors = {
        variant: _color(step, variant in main or bool(one))
        for variant, step in known.items()
        if step.gain.known
    }
    rate = rate_column(data.here)
    for place, variant in enumerate(order):
        row, step, own = rows[variant], known.get(variant), variant in main
        if not own:  # a branch is indented
            labels[place] = "\n".join(f"{line}    " for line in labels[place].splitlines())
        if row["status"] != "ok":
            _no_result(gains, place, row)
            continue
        if step is not None and step.gain.known:
            _gain(gains, place, step, own, colors[variant])
        base.interval(speeds, place, row, style.INK if own else style.MUTED, ms=4.5 if own else 3.5)
        if rate and row[rate[0]] is not None:
            look: dict[str, Any] = {
                "xycoords": ("axes fraction", "data"),
                "va": "center",
                "ha": "right",
                "fontsize": 9,
            }
            speeds.annotate(number(row[rate[0]], 3), (1.24, place), color=style.MUTED, **look)
    found = [step for step in known.values() if step.gain.known]
    reach = [end for step in found for end in astuple(step.gain.measured)]
    low, high = min(*reach, 1.0), max(*reach, 1.0)
    wide = high / low
    # Room for the words beside the longest bars.
    base.factor_axis(gains, low / wide**0.16, high * wide**0.16)
    gains.axvline(1, color=style.REFERENCE, lw=1.0, zorder=2.5)
    done = [row for row in rows.values() if row["status"] == "ok"]
    spans = [end for row in done for end in (row["speedup_low"], row["speedup_high"])]
    base.factor_axis(speeds, min(*spans, 1.0), max(*spans, 1.0), most=4)
    speeds.axvline(1, color=style.REFERENCE, lw=1.2, ls="--", zorder=2)
    gains.set_xlabel(
        f"speed with the change, over that of “{data.names[one]}”"
        if one
        else "gain over the bold rung above it,\nor over the one named: (on …)"
    )
    speeds.set_xlabel(f"speed relative to {rival(data)}")
    if rate:
        head: dict[str, Any] = {
            "xycoords": "axes fraction",
            "textcoords": "offset points",
            "fontsize": 9,
            "ha": "right",
        }
        speeds.annotate(rate[1], (1.24, 1), (0, 2), color=style.MUTED, **head)
    gains.set_yticks(range(len(order)), labels, fontsize=size)
    gains.set_ylim(len(order) - 0.4, -0.6)
    for label, variant in zip(gains.get_yticklabels(), order, strict=True):
        label.set_color(style.INK if variant in main else style.MUTED)
        label.set_fontweight("bold" if variant in main else "normal")
    for axis in (gains, speeds):
        axis.grid(axis="y", visible=False)
    names = {style.AHEAD: "faster", style.BEHIND: "slower", style.TIE: "tie"}
    names |= {style.PALE[color]: f"{names[color]}, beside the path" for color in style.PALE}
    shown = [color for color in names if color in colors.values()]
    handles = [Patch(color=color, label=names[color]) for color in shown]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=3 if len(handles) <= 3 else 2,
        frameon=False,
        title=base.RANGES,
        title_fontsize=9,
    )
    return figure


def _ranked(data: FigureData, rows: Mapping[str, Any], order: Sequence[str]) -> Figure:
    """Rungs that build on none: the fastest first."""
    fast = sorted(
        order, key=lambda variant: -rows[variant]["speedup"] if rows[variant]["status"] == "ok" else math.inf
    )
    labels = [base.broken(data.names[variant]) for variant in fast]
    height, size = _rows(labels)
    figure, (axis,) = base.canvas(data, 1.5 + height, data.size_text)
    rate = rate_column(data.here)
    for place, variant in enumerate(fast):
        row = rows[variant]
        if row["status"] != "ok":
            _no_result(axis, place, row)
            continue
        color = base.VERDICTS[gain(row).verdict]
        base.interval(axis, place, row, color)
        look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 9}
        if rate and row[rate[0]] is not None:
            axis.annotate(
                f"{change_label(row['speedup'])}, {number(row[rate[0]], 3)} {rate[1]}",
                (1.02, place),
                color=style.MUTED,
                **look,
            )
    done = [row for row in rows.values() if row["status"] == "ok"]
    ends = [
        row[f"{name}_{end}"] for row in done for name in ("speedup", "predicted") for end in ("low", "high")
    ]
    ends = [end for end in ends if end is not None]
    base.factor_axis(axis, min(*ends, 1.0), max(*ends, 1.0))
    axis.axvline(1, color=style.REFERENCE, lw=1.2, ls="--", zorder=2)
    axis.set_yticks(range(len(fast)), labels, fontsize=size)
    axis.set(ylim=(len(fast) - 0.4, -0.6), xlabel=f"speed relative to {rival(data)}\n{base.RANGES}")
    axis.grid(axis="y", visible=False)
    return figure


def draw(data: FigureData) -> Figure:
    """Bars of gains in the order of the rungs; where all change one rung, what costs most first."""
    shown = at_size(data.timings[data.timings["regime"] == data.regime], data.size)
    data.some(data.here)
    rows = {row["variant"]: row for row in records(shown)}
    known = {step.row["variant"]: step for step in steps(data)}
    order = [entry.variant.id for entry in data.sweep.entries if entry.variant.id in rows]
    if data.sweep.tuning or not any(step.gain.known for step in known.values()):
        return _ranked(data, rows, order)
    if changed_by_all(data):
        order.sort(
            key=lambda variant: (
                known[variant].gain.value if variant in known and known[variant].gain.known else 0
            )
        )
    return _ladder(data, known, rows, order)
