"""Ladder: what each rung gains over the rung that it changes, and beside it how fast it then is."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ladder.report.figures import base, style
from ladder.report.ladder_steps import (
    changed_by_all,
    changed_rungs,
    path_to_fastest,
    steps,
)
from ladder.report.markdown import number
from ladder.report.titles import change_label, rival
from ladder.results.statistics import at_size, rate_column
from ladder.results.sweep_data import FigureData

_LINE = 0.21  # inches of a line of a label
_NAME_WIDTH = 46  # characters of a line of a label
_UNDER_SPEEDS = 26  # the same below the narrow axis


def draw(data: FigureData) -> Figure:
    """Bars of gains in the order of the rungs; where all change one rung, what costs most first.

    Rungs that build on none have no bars: the fastest is first.
    """
    data.some(data.here)
    rows = _rows(data)
    branches = not rows["on_path"].all()
    labels = _labels(data, rows)
    lines = max(label.count("\n") + 1 for label in labels)
    changes = rows[rows["gain"].notna()]
    widths = [2, 1] if len(changes) else [1]
    figure, axes = base.canvas(
        data,
        1.9 + _LINE * lines * len(rows),
        f"{data.size_text} · {base.RANGES}",
        ncols=len(widths),
        width_ratios=widths,
        sharey=True,
    )
    first = axes[0]
    if len(changes):
        _draw_gains(first, changes)
        first.set_xlabel(_what_gains_are(data))
    _draw_speeds(axes[-1], data, rows)
    first.set_yticks(
        rows["place"],
        labels,
        fontsize=9.5,
    )
    first.set_ylim(len(rows) - 0.4, -0.6)
    names = first.get_yticklabels()
    for name, on_path in zip(names, rows["on_path"], strict=True):
        if not on_path:
            name.set_color(style.MUTED)
        elif branches:
            name.set_fontweight("bold")
    failed = rows[rows["status"] != "ok"]
    for place, status in zip(failed["place"], failed["status"], strict=True):
        first.text(
            1,
            place,
            f" no result: {status}",
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


def _rows(data: FigureData) -> DataFrame:
    """The rows of all rungs with their `place`, the columns of `_gains`, and whether they are `on_path`."""
    rungs = [entry.variant.id for entry in data.sweep.entries]
    timed = data.timings[data.timings["regime"] == data.regime]
    rows = DataFrame({"variant": rungs}).merge(at_size(timed, data.size))
    rows = rows.merge(_gains(data), on="variant", how="left")
    on_path = rows["variant"].isin(path_to_fastest(data))
    if rows["gain"].isna().all():
        rows = rows.sort_values("speedup", ascending=False, kind="stable")
        on_path[:] = True
    elif changed_by_all(data):
        rows = rows.sort_values("gain", na_position="first", kind="stable")
        on_path[:] = True
    return rows.assign(on_path=on_path, place=range(len(rows)))


def _gains(data: FigureData) -> DataFrame:
    """By variant the `gain`, the ends of what was measured, and how far the interval that decides reaches.

    None of a tuning sweep, whose variants build on none.
    """
    gains = []
    for step in steps(data):
        gain = step.gain
        if gain.known and not data.sweep.tuning:
            ends = (gain.measured.low, gain.measured.high)
            below = gain.value - gain.deciding.low
            above = gain.deciding.high - gain.value
            variant = step.row["variant"]
            gains.append((variant, gain.value, *ends, below, above))
    columns = ["variant", "gain", "low", "high", "below", "above"]
    return DataFrame(gains, columns=columns)


def _labels(data: FigureData, rows: DataFrame) -> list[str]:
    """Names of rungs, with the rung that one changes where that is not the one above it; a branch is indented."""
    changed = changed_rungs(data, list(rows["variant"]))
    labels = []
    for variant, on_path in zip(rows["variant"], rows["on_path"], strict=True):
        name = data.names[variant]
        if variant in changed:
            name += f" (on {changed[variant]})"
        label = textwrap.fill(name, _NAME_WIDTH)
        if not on_path:
            label = label.replace("\n", "    \n") + "    "
        labels.append(label)
    return labels


def _what_gains_are(data: FigureData) -> str:
    if variant := changed_by_all(data):
        return f"speed with the change, over that of “{data.names[variant]}”"
    return "gain over the bold rung above,\nor over the one named: (on …)"


def _draw_gains(axis: Axes, rows: DataFrame) -> None:
    """Bars from 1 to the gains, with their intervals and the gains in words."""
    axis.set_xscale("log")
    axis.margins(x=0.25)  # for the words beside the longest bars
    axis.axvline(1, color=style.REFERENCE)
    looks = {
        True: (style.AHEAD, "on the path to the fastest"),
        False: (style.PALE, "beside it"),
    }
    for on_path, (color, label) in looks.items():
        gains = rows[(rows["on_path"] == on_path) & rows["gain"].notna()]
        if gains.empty:
            continue
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


def _draw_speeds(axis: Axes, data: FigureData, rows: DataFrame) -> None:
    """Speeds with their intervals, or rates where rungs have other baselines; and at the right the rates in numbers."""
    good = rows[rows["status"] == "ok"]
    column, unit = rate_column(good) or ("", "")
    by_rate = column and data.own_references
    axis.set_xscale("log")
    for on_path, color in ((True, style.INK), (False, style.MUTED)):
        drawn = good[good["on_path"] == on_path]
        if by_rate:
            axis.plot(drawn[column], drawn["place"], "o", color=color)
        else:
            base.intervals(axis, drawn, color)
    if by_rate:
        axis.set_xlabel(unit)
    else:
        axis.axvline(1, color=style.REFERENCE, ls="--")
        words = f"speed relative to {rival(data)}"
        axis.set_xlabel(textwrap.fill(words, _UNDER_SPEEDS))
    if column:
        right = axis.secondary_yaxis("right")
        numbers = [number(value, 3) for value in rows[column]]
        right.set_yticks(rows["place"], numbers, fontsize=9)
        right.set_ylabel("" if by_rate else unit, rotation=270, va="bottom")
        right.tick_params(length=0)
