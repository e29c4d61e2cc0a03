"""Ladder: what each rung gains over the rung that it changes, and beside it how fast it then is."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures import base, style
from ladder.report.ladder_steps import (
    changed_by_all,
    changed_rungs,
    path_to_fastest,
    steps,
)
from ladder.report.markdown import number
from ladder.report.titles import change_label, rival
from ladder.results.statistics import at_size, rate_column, records
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import Gain

_LINE = 0.21  # inches of a line of a label
_NAME_WIDTH = 46  # characters of a line of a label
Rows = Sequence[Mapping[str, Any]]


def draw(data: FigureData) -> Figure:
    """Bars of gains in the order of the rungs; where all change one rung, what costs most first.

    Rungs that build on none have no bars: the fastest is first.
    """
    data.some(data.here)
    gains = dict[str, Gain]()
    for step in steps(data):
        if step.gain.known and not data.sweep.tuning:
            gains[step.row["variant"]] = step.gain
    rows = _rows(data, gains)
    path = {entry.variant.id for entry in path_to_fastest(data)}
    if not gains or changed_by_all(data):
        path = {row["variant"] for row in rows}
    branches = len(path) < len(rows)
    labels = _labels(data, rows, path)
    lines = max(label.count("\n") + 1 for label in labels)
    widths = [2, 1] if gains else [1]
    figure, axes = base.canvas(
        data,
        1.9 + _LINE * lines * len(rows),
        f"{data.size_text} · {base.RANGES}",
        ncols=len(widths),
        width_ratios=widths,
        sharey=True,
    )
    first = axes[0]
    if gains:
        table = _gains_table(rows, gains)
        on_path = table["variant"].isin(path)
        first.set_xscale("log")
        first.margins(x=0.25)  # for the words beside the longest bars
        first.axvline(1, color=style.REFERENCE)
        _draw_gains(
            first,
            table[on_path],
            style.AHEAD,
            "on the path to the fastest",
        )
        _draw_gains(first, table[~on_path], style.PALE, "beside it")
        first.set_xlabel(_what_gains_are(data))
    _draw_speeds(axes[-1], data, rows, path)
    first.set_yticks(
        range(len(rows)),
        labels,
        fontsize=9.5,
    )
    first.set_ylim(len(rows) - 0.4, -0.6)
    names = first.get_yticklabels()
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        if row["variant"] not in path:
            name.set_color(style.MUTED)
        elif branches:
            name.set_fontweight("bold")
        if row["status"] != "ok":
            first.text(
                1,
                place,
                f" no result: {row['status']}",
                style="italic",
                fontsize=9,
                va="center",
            )
    for axis in axes:
        axis.grid(axis="y", visible=False)
        base.factor_ticks(axis.xaxis)
    if branches:
        base.legend_below(figure, [first])
    return figure


def _rows(data: FigureData, gains: Mapping[str, Gain]) -> Rows:
    """The rows of all rungs, in the order that they are drawn in."""
    timed = data.timings[data.timings["regime"] == data.regime]
    timed = at_size(timed, data.size)
    by_variant = {row["variant"]: row for row in records(timed)}
    variants = [entry.variant.id for entry in data.sweep.entries]
    rows = [by_variant[variant] for variant in variants if variant in by_variant]
    if not gains:
        rows.sort(key=lambda row: row["speedup"] or 0.0, reverse=True)
    elif changed_by_all(data):
        value = {variant: gain.value for variant, gain in gains.items()}
        rows.sort(key=lambda row: value.get(row["variant"], 0.0))
    return rows


def _labels(data: FigureData, rows: Rows, path: Collection[str]) -> list[str]:
    """Names of rungs, with the rung that one changes where that is not the one above it; a branch is indented."""
    variants = [row["variant"] for row in rows]
    changed = changed_rungs(data, variants)
    labels = list[str]()
    for variant in variants:
        name = data.names[variant]
        if variant in changed:
            name += f" (on {changed[variant]})"
        label = textwrap.fill(name, _NAME_WIDTH)
        if variant not in path:
            label = label.replace("\n", "    \n") + "    "
        labels.append(label)
    return labels


def _what_gains_are(data: FigureData) -> str:
    if variant := changed_by_all(data):
        return f"speed with the change, over that of “{data.names[variant]}”"
    return "gain over the bold rung above it,\nor over the one named: (on …)"


def _gains_table(rows: Rows, gains: Mapping[str, Gain]) -> pd.DataFrame:
    """The gains with their places, the ends of what was measured, and those of the interval that decides."""
    table = list[dict[str, Any]]()
    for place, row in enumerate(rows):
        if gain := gains.get(row["variant"]):
            cell = {
                "variant": row["variant"],
                "place": place,
                "gain": gain.value,
                "low": gain.measured.low,
                "high": gain.measured.high,
                "below": gain.value - gain.deciding.low,
                "above": gain.deciding.high - gain.value,
            }
            table.append(cell)
    return pd.DataFrame(table)


def _draw_gains(axis: Axes, gains: pd.DataFrame, color: str, label: str) -> None:
    """Bars from 1 to the gains, with their intervals and the gains in words."""
    bars = axis.barh(
        gains["place"],
        gains["gain"] - 1,
        left=1,
        height=0.6,
        color=color,
        label=label,
        xerr=[gains["below"], gains["above"]],
        error_kw={"lw": 0.8},
    )
    axis.bar_label(
        bars,
        gains["gain"].map(change_label).tolist(),
        padding=4,
        fontsize=8.5,
    )
    axis.hlines(
        gains["place"],
        gains["low"],
        gains["high"],
        color=style.INK,
        lw=2.2,
        zorder=4,
    )


def _draw_speeds(
    axis: Axes,
    data: FigureData,
    rows: Rows,
    path: Collection[str],
) -> None:
    """Speeds with their intervals, and at the right the rates."""
    rate, unit = rate_column(data.here) or ("", "")
    rates = list[str]()
    for place, row in enumerate(rows):
        rates.append(number(row.get(rate), 3))
        if row["status"] == "ok":
            on_path = row["variant"] in path
            color = style.INK if on_path else style.MUTED
            base.interval(axis, place, row, color)
    axis.set_xscale("log")
    axis.axvline(1, color=style.REFERENCE, ls="--")
    axis.set_xlabel(f"speed relative to {rival(data)}")
    right = axis.secondary_yaxis("right")
    right.set_yticks(range(len(rows)), rates, fontsize=9)
    right.set_ylabel(unit, rotation=270, va="bottom")
    right.tick_params(length=0)
