"""Stencil: speed-up of the register cache over shared memory by reach k, with the spills that limit it."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ladder.figures.data import FigureData
from ladder.figures.style import MARKERS, PALETTE, REFERENCE, canvas, heading, legend_below
from ladder.statistics import Estimate, at_size, estimate, parameter, records, speedup_over


def _baseline(rows: pd.DataFrame, row: dict[str, Any], x: str, hue: str | None) -> dict[str, Any] | None:
    """The reference kernel's plainest variant at the same x: the first value of hue."""
    same = rows[(rows["kernel"] != row["kernel"]) & (rows["x"] == row["x"]) & (rows["dtype"] == row["dtype"])]
    if not len(same):
        return None
    plain = same.sort_values("hue").iloc[0] if hue else same.iloc[0]
    return {str(name): value for name, value in plain.to_dict().items()}


def _points(data: FigureData, kernel: str, x: str, hue: str | None) -> list[dict[str, Any]]:
    rows = data.some(at_size(data.ok(), data.size), f"result at {data.size_text}")
    rows = rows[rows["dtype"] == rows["dtype"].iloc[0]]
    rows = rows.assign(x=parameter(rows, x), hue=parameter(rows, hue) if hue else 1)
    twin = data.paired_with_kernel
    resources = data.resources.set_index("variant")
    points = []
    for row in records(rows[rows["kernel"] == kernel]):
        speed: Estimate | None = estimate(row, "speedup") if twin else None
        if not twin and (plain := _baseline(rows, row, x, hue)) is not None:
            speed = speedup_over(row, plain)
        if speed is None or not speed.known:
            continue
        spills = resources["local_bytes"].get(row["variant"])
        points.append(row | {"speed": speed, "spills": float("nan") if pd.isna(spills) else float(spills)})
    return points


def draw(data: FigureData) -> Figure:
    """Left: speed-up with 95 % intervals, the reference at 1. Right: bytes spilled per thread."""
    x, hue = data.figure.x or "k", data.figure.hue
    kernels = [entry.variant.kernel.name for entry in data.sweep.entries]
    reference = data.sweep.references[0].kernel
    own = [name for name in dict.fromkeys(kernels) if reference is None or name != reference.name]
    kernel = own[-1] if own else kernels[-1]
    points = _points(data, kernel, x, hue)
    data.some(pd.DataFrame(points), f"pair to compare at {data.size_text}")
    twin = data.paired_with_kernel
    figure, (left, right) = canvas(
        data,
        4.9,
        heading(data.sweep.title, f"{points[0]['dtype']}, {data.size_text}"),
        columns=2,
        gridspec_kw={"width_ratios": [2, 1]},
    )
    hues = sorted({point["hue"] for point in points})
    width, spill_free = 0.16, list[str]()
    for index, value in enumerate(hues):
        line = sorted(
            (point for point in points if point["hue"] == value), key=lambda point: float(point["x"])
        )
        shift = (index - (len(hues) - 1) / 2) * width
        style: dict[str, Any] = {"marker": MARKERS[index], "color": PALETTE[index], "ms": 5.5, "lw": 1.6}
        spread = [
            [max(point["speed"].value - point["speed"].low, 0) for point in line],
            [max(point["speed"].high - point["speed"].value, 0) for point in line],
        ]
        places = [float(point["x"]) + shift for point in line]
        label = f"{hue} = {value}" if hue else kernel
        left.errorbar(
            places, [point["speed"].value for point in line], yerr=spread, capsize=3, label=label, **style
        )
        if any(point["spills"] for point in line):
            right.plot(places, [point["spills"] for point in line], **style)
        else:
            spill_free.append(f"{value}")
    left.axhline(
        1,
        color=REFERENCE,
        ls="--",
        lw=1.6,
        label=data.reference_name if twin else "shared memory, plainest variant",
    )
    left.set_ylim(bottom=0)
    left.set_ylabel(f"speed of {kernel}\nover shared memory")
    right.set_ylabel("spilled bytes per thread")
    # Lines that lie on zero would cover each other: they are named instead.
    if spill_free and hue:
        right.set_title(f"none at {hue} = {', '.join(spill_free)}", fontsize=10)
    if len(spill_free) == len(hues):
        right.set_ylim(0, 16)
        right.set_title("no spills", fontsize=10)
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
