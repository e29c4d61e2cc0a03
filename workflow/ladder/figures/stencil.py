"""Stencil: speed-up of the register cache over shared memory by reach k, with the spills that limit it."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.figures.data import FigureData
from ladder.figures.style import MARKERS, PALETTE, REFERENCE, canvas, heading, legend_below
from ladder.statistics import Estimate, at_size, estimate, parameter, params_of, records, speedup_over


def _baseline(rows: pd.DataFrame, row: dict[str, Any], x: str, hue: str | None) -> dict[str, Any] | None:
    """The reference kernel's plainest variant at the same x: the first value of hue."""
    same = rows[(rows["kernel"] != row["kernel"]) & (rows["x"] == row["x"]) & (rows["dtype"] == row["dtype"])]
    if not len(same):
        return None
    plain = same.sort_values("hue").iloc[0] if hue else same.iloc[0]
    return {str(name): value for name, value in plain.to_dict().items()}


def _paired(data: FigureData) -> bool:
    """Whether the cells' own speed-up is shown: over a twin kernel, or over a copy where no other kernel takes part."""
    return data.paired_with_kernel or len({entry.variant.kernel.name for entry in data.sweep.entries}) == 1


def _kinds(rows: pd.DataFrame, kernel: str, x: str) -> list[str]:
    """For each row those of its parameters, but x, in which the kernel's rows differ."""
    known = [params_of(text) for text in rows[rows["kernel"] == kernel]["params"]]
    names = dict.fromkeys(name for params in known for name in params if name != x)
    apart = [name for name in names if len({params.get(name) for params in known}) > 1]
    return [", ".join(f"{name} = {params_of(text).get(name)}" for name in apart) for text in rows["params"]]


def _points(data: FigureData, kernel: str, x: str, hue: str | None) -> list[dict[str, Any]]:
    rows = data.some(at_size(data.ok(), data.size), f"result at {data.size_text}")
    rows = rows[rows["dtype"] == rows["dtype"].iloc[0]]
    rows = rows.assign(x=parameter(rows, x), hue=parameter(rows, hue) if hue else _kinds(rows, kernel, x))
    twin = _paired(data)
    resources = data.resources.set_index("variant")
    points = []
    for row in records(rows[rows["kernel"] == kernel]):
        speed: Estimate | None = estimate(row, "speedup") if twin else None
        if not twin and (plain := _baseline(rows, row, x, hue)) is not None:
            speed = speedup_over(row, plain)
        if speed is None or not speed.known:
            continue
        known = {name: resources[name].get(row["variant"]) for name in ("local_bytes", "registers")}
        numbers = {name: math.nan if pd.isna(value) else float(value) for name, value in known.items()}
        points.append(row | numbers | {"speed": speed})
    return points


def _pressure(axis: Axes, lines: dict[Any, list[dict[str, Any]]], hue: str | None) -> None:
    """Bytes spilled per thread; where nothing spills, the registers that were enough."""
    spilling = {
        value: line for value, line in lines.items() if any(point["local_bytes"] > 0 for point in line)
    }
    shown, column = (spilling, "local_bytes") if spilling else (lines, "registers")
    for line in shown.values():
        axis.plot([point["place"] for point in line], [point[column] for point in line], **line[0]["style"])
    axis.set_ylim(bottom=0)
    axis.set_ylabel("spilled bytes per thread" if spilling else "registers per thread")
    # Lines that lie on zero would cover each other: they are named instead.
    without = [str(value) for value in lines if value not in spilling]
    if not spilling:
        axis.set_title("no variant spills", fontsize=10)
    elif hue and without:
        axis.set_title(f"none at {hue} = {', '.join(without)}", fontsize=10)


def _lines(points: list[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    """Points by hue, each line with a style and a little aside of its neighbours."""
    lines: dict[Any, list[dict[str, Any]]] = {}
    hues = sorted({point["hue"] for point in points})
    for index, value in enumerate(hues):
        aside = 0.16 * (index - (len(hues) - 1) / 2)
        style = {"marker": MARKERS[index], "color": PALETTE[index], "ms": 5.5, "lw": 1.6}
        line = sorted(
            (point for point in points if point["hue"] == value), key=lambda point: float(point["x"])
        )
        lines[value] = [point | {"place": float(point["x"]) + aside, "style": style} for point in line]
    return lines


def draw(data: FigureData) -> Figure:
    """Left: speed-up with 95 % intervals, the reference at 1. Right: bytes spilled, or registers."""
    x, hue = data.figure.x or "k", data.figure.hue
    kernels = [entry.variant.kernel.name for entry in data.sweep.entries]
    reference = data.sweep.references[0].kernel
    own = [name for name in dict.fromkeys(kernels) if reference is None or name != reference.name]
    kernel = own[-1] if own else kernels[-1]
    points = _points(data, kernel, x, hue)
    data.some(pd.DataFrame(points), f"pair to compare at {data.size_text}")
    figure, (left, right) = canvas(
        data,
        4.9,
        heading(data.sweep.title, f"{points[0]['dtype']}, {data.size_text}"),
        columns=2,
        gridspec_kw={"width_ratios": [2, 1]},
    )
    lines = _lines(points)
    for value, line in lines.items():
        spread = [
            [max(point["speed"].value - point["speed"].low, 0) for point in line],
            [max(point["speed"].high - point["speed"].value, 0) for point in line],
        ]
        left.errorbar(
            [point["place"] for point in line],
            [point["speed"].value for point in line],
            yerr=spread,
            capsize=3,
            label=f"{hue} = {value}" if hue else value or kernel,
            **line[0]["style"],
        )
    baseline = data.reference_name if _paired(data) else "the plainest other kernel"
    left.axhline(1, color=REFERENCE, ls="--", lw=1.6, label=baseline)
    left.set_ylim(bottom=0)
    left.set_ylabel(f"speed of {kernel}\nover {baseline}")
    _pressure(right, lines, hue)
    ticks = sorted({float(point["x"]) for point in points})
    ticks = ticks if len(ticks) <= 9 else ticks[::3]
    for axis in (left, right):
        axis.set_xlabel(f"{x} (taps = {x} + 1)" if x == "k" else x)
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_xlim(ticks[0] - 1, max(float(point["x"]) for point in points) + 1)
    wide = [tick for place, tick in enumerate(ticks) if place == 0 or tick - ticks[place - 1] > 2]
    right.set_xticks(wide, [f"{tick:g}" for tick in wide])
    right.tick_params(axis="x", labelsize=9)
    legend_below(figure, left)
    return figure
