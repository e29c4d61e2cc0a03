"""Ladder: the path of rungs to the fastest, each a step from the one before, with its branches beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.model.sweep import Entry
from ladder.report.figures.base import above, canvas
from ladder.report.figures.style import BEHIND, MUTED, PALETTE, REFERENCE
from ladder.report.markdown import figure as number
from ladder.report.steps import Step, path, steps
from ladder.report.sweep_data import FigureData
from ladder.results.statistics import at_size, estimate, records
from ladder.results.verdicts import SLOWER, TIED

_ROW, _TALLEST = 0.27, 6.6  # inches from row to row, and of all rows
_GAIN, _RATE = 8, 60  # points from the axes to where the columns beside them begin
_COLUMN: Mapping[str, Any] = {"textcoords": "offset points", "fontsize": 9.5}


def _order(data: FigureData, rungs: Sequence[Entry], main: set[str]) -> list[Entry]:
    """The main path from its first rung on, each followed by the branches that change it; the rest at the end."""
    found: list[Entry] = []

    def add(entry: Entry) -> None:
        if entry not in found:
            found.append(entry)
            beside = [one for one in rungs if one.baseline and one.baseline.variant == entry.variant]
            for one in sorted(beside, key=lambda one: one.variant.id in main):
                add(one)

    for entry in rungs:
        if entry.baseline is None:
            add(entry)
    return [*found, *(entry for entry in rungs if entry not in found)]


def _mark(axis: Axes, place: int, row: Mapping[str, Any], color: str, main: bool) -> None:
    speed = estimate(row, "speedup")
    ends = [[max(speed.value - speed.low, 0)], [max(speed.high - speed.value, 0)]]
    look: dict[str, Any] = {"color": color, "marker": "o", "capsize": 3, "lw": 1.4, "zorder": 4}
    look |= {"ms": 7} if main else {"ms": 6, "mfc": "white", "mew": 1.4}
    axis.errorbar([speed.value], [place], xerr=ends, **look)


def _beside(axis: Axes, place: int, step: Step | None, row: Mapping[str, Any]) -> None:
    """The gain over the rung that it changes, and the rate, in columns on the right."""
    look: dict[str, Any] = {"va": "center", "xycoords": ("axes fraction", "data"), **_COLUMN}
    if step is not None and step.gain.known:
        color = {TIED: MUTED, SLOWER: BEHIND}.get(step.as_gain.verdict, REFERENCE)
        axis.annotate(f"x {number(step.gain.value, 3)}", (1, place), (_GAIN, 0), color=color, **look)
    if not pd.isna(row["tflops"]):
        axis.annotate(number(row["tflops"], 3), (1, place), (_RATE, 0), color=MUTED, **look)


def draw(data: FigureData) -> Figure:
    """Points with 95 % intervals, a line through the main path; the reference is the line at 1."""
    shown = at_size(data.timings[data.timings["regime"] == data.regime], data.size)
    done = data.some(data.here)
    rungs = [entry for entry in data.sweep.entries if entry.variant.id in set(shown["variant"])]
    main = {entry.variant.id for entry in path(data)}
    leads = len(main) > 1  # else no rung builds on another, and there is no path to tell from its branches
    order = [entry.variant.id for entry in _order(data, rungs, main)]
    places = {variant: place for place, variant in enumerate(order)}
    rows = {row["variant"]: row for row in records(shown)}
    known = {step.row["variant"]: step for step in steps(data)}
    height = min(_ROW * len(order), _TALLEST)
    figure, (axis,) = canvas(data, 1.5 + height, data.size_text)
    colors = dict(zip(data.sweep.dtypes, PALETTE, strict=False))
    for variant, place in places.items():
        row, step = rows[variant], known.get(variant)
        if row["status"] != "ok":
            axis.text(
                0.01,
                place,
                f"no result: {row['status']}",
                va="center",
                color=MUTED,
                style="italic",
                fontsize=9,
            )
            continue
        _mark(axis, place, row, colors[row["dtype"]], variant in main or not leads)
        _beside(axis, place, step, row)
        if variant not in main and step is not None and step.below in places:
            ends = [rows[step.below]["speedup"], row["speedup"]]
            look: dict[str, Any] = {"color": colors[row["dtype"]], "zorder": 3}
            axis.plot(ends, [places[step.below], place], lw=1.0, ls=":", **look)
    walked = [rows[variant] for variant in order if variant in main and rows[variant]["status"] == "ok"]
    color = colors[walked[0]["dtype"]] if walked else REFERENCE
    speeds = [row["speedup"] for row in walked]
    axis.plot(speeds, [places[row["variant"]] for row in walked], color=color, lw=2.0, zorder=3)
    axis.axvline(1, color=REFERENCE, lw=1.4, ls="--", zorder=2)
    above(axis, 1, data.short_reference, xytext=(3, 2), ha="right", fontsize=9.5)
    heads: dict[str, Any] = {"va": "bottom", "color": MUTED, "xycoords": "axes fraction", **_COLUMN}
    if any(step.gain.known for step in known.values()):
        axis.annotate("gain", (1, 1), (_GAIN, 2), **heads)
    if not done["tflops"].isna().all():
        axis.annotate("TFLOP/s", (1, 1), (_RATE, 2), **heads)
    labels = [data.names[variant] for variant in order]
    axis.set_yticks(range(len(order)), labels, fontsize=min(10, 62 * height / len(order) * 0.62))
    for label, variant in zip(axis.get_yticklabels(), order, strict=True):
        label.set_color(REFERENCE if variant in main or not leads else MUTED)
        label.set_fontweight("bold" if variant in main and leads else "normal")
    highest = max(1.0, float(done["speedup_high"].max()))
    axis.set(ylim=(len(order) - 0.4, -0.6), xlim=(0, highest * 1.04))
    marks = "\nfilled: the path, hollow: branches" if leads else ""
    axis.set_xlabel(f"speed relative to {data.short_reference}, 95 % interval{marks}")
    axis.grid(axis="y", visible=False)
    return figure
