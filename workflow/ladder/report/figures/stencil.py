"""Stencil: speed over the reference by one parameter, with the registers and spills that limit it; a row per dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ladder.report.figures.data import FigureData
from ladder.report.figures.style import (
    MARKERS,
    PALETTE,
    REFERENCE,
    canvas,
    heading,
    legend_below,
    ratio_limits,
)
from ladder.results.statistics import at_size, parameter, params_of, records

Row = dict[str, Any]

_LOGARITHMIC = 16
"""From this ratio of the largest to the smallest x on, the axis counts octaves."""


@dataclass(frozen=True)
class Line:
    """Cells of one kernel that differ in x (and dtype) only; `twin` marks the reference's own kernel."""

    label: str
    rows: pd.DataFrame
    style: dict[str, Any]
    aside: float
    twin: bool

    def of(self, dtype: str) -> list[Row]:
        """The cells of a dtype by x, with `place`, a little aside of the other lines' cells."""
        rows = self.rows[self.rows["dtype"] == dtype].sort_values("x")
        return [row | {"place": self._place(row)} for row in records(rows)]

    def _place(self, row: Row) -> float:
        x = float(row["x"])
        return float(x * 2 ** (0.3 * self.aside)) if row["octaves"] else x + self.aside


def _kind(params: dict[str, Any], apart: Sequence[str]) -> str:
    """What tells a variant from the others: words as they are, numbers with their names."""
    values = {name: params[name] for name in apart if name in params}
    return ", ".join(value if isinstance(value, str) else f"{name} {value}" for name, value in values.items())


def _cells(data: FigureData, x: str, hue: str | None) -> pd.DataFrame:
    """Cells at the figure's size with `x`, the resources of their variants, and `line`: what they have in common."""
    rows = data.some(at_size(data.ok(), data.size), f"result at {data.size_text}")
    rows = rows.assign(x=parameter(rows, x).astype(float))
    known = [params_of(text) for text in rows["params"]]
    names = dict.fromkeys(name for params in known for name in params if name != x)
    apart: dict[str, list[str]] = {}
    for kernel in dict.fromkeys(rows["kernel"]):
        own = [params for params, of in zip(known, rows["kernel"], strict=True) if of == kernel]
        shown = [hue] if hue else list(names)
        apart[kernel] = [name for name in shown if len({params.get(name) for params in own}) > 1]
    kinds = [_kind(params, apart[of]) for params, of in zip(known, rows["kernel"], strict=True)]
    octaves = rows["x"].min() > 0 and rows["x"].max() >= _LOGARITHMIC * rows["x"].min()
    resources = data.resources.drop_duplicates("variant").set_index("variant")[["local_bytes", "registers"]]
    return rows.assign(kind=kinds, octaves=octaves).join(resources.astype(float), on="variant")


def _is_baseline(data: FigureData, row: Row) -> bool:
    """Whether a row is the very variant that the others are timed against."""
    reference = data.sweep.reference
    params = params_of(row["params"])
    same = reference.kernel is not None and row["kernel"] == reference.kernel.name
    return same and all(params.get(name) == value for name, value in reference.params.items())


def _lines(data: FigureData, cells: pd.DataFrame) -> list[Line]:
    """Lines of the kernels under test; those of the reference's kernel take the colour of their like."""
    reference = data.sweep.reference.kernel
    twin = reference.name if reference is not None and set(cells["kernel"]) != {reference.name} else None
    shown = cells[[not _is_baseline(data, row) for row in records(cells)]] if twin else cells
    groups = {
        (str(kernel), str(kind)): rows
        for (kernel, kind), rows in shown.groupby(["kernel", "kind"], sort=False)
    }
    tested = [key for key in groups if key[0] != twin]
    several = len({kernel for kernel, _ in tested}) > 1
    lines = []
    for index, (kernel, kind) in enumerate(tested):
        label = ", ".join(part for part in (kernel if several or not kind else "", kind) if part)
        style = {"marker": MARKERS[index], "color": PALETTE[index], "ms": 5, "lw": 1.6}
        aside = 0.09 * (index - (len(tested) - 1) / 2)
        lines.append(Line(label, groups[kernel, kind], style, aside, False))
        if twin is not None and (twin, kind) in groups:
            plain = {"color": PALETTE[index], "lw": 1.2, "ls": ":"}
            lines.append(Line(f"{twin}, {kind}", groups[twin, kind], plain, aside, True))
    return lines


def _speed(axis: Axes, lines: Sequence[Line], dtype: str) -> None:
    for line in lines:
        rows = line.of(dtype)
        speed = [row["speedup"] for row in rows]
        spread = [
            [max(row["speedup"] - row["speedup_low"], 0) for row in rows],
            [max(row["speedup_high"] - row["speedup"], 0) for row in rows],
        ]
        places = [row["place"] for row in rows]
        if line.twin:
            axis.plot(places, speed, **line.style)
        else:
            axis.errorbar(places, speed, yerr=spread, capsize=3, label=line.label, **line.style)


def _pressure(axis: Axes, lines: Sequence[Line], dtype: str) -> None:
    """Bytes spilled per thread; where nothing spills, the registers that were enough."""
    cells = {line.label: line.of(dtype) for line in lines if not line.twin}
    spilling = [label for label, rows in cells.items() if any(row["local_bytes"] > 0 for row in rows)]
    column = "local_bytes" if spilling else "registers"
    for line in lines:
        if not line.twin and (not spilling or line.label in spilling):
            rows = cells[line.label]
            axis.plot([row["place"] for row in rows], [row[column] for row in rows], **line.style)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("spilled bytes per thread" if spilling else "registers per thread")
    # Lines that lie on zero would cover each other: they are named instead.
    without = [label for label in cells if label not in spilling]
    if not spilling:
        axis.set_title("no variant spills", fontsize=10)
    elif without:
        axis.set_title("none: " + "; ".join(without), fontsize=9)


def _ticks(axis: Axes, cells: pd.DataFrame, most: int) -> None:
    """At most `most` of the values of x; of octaves the whole ones first."""
    values = sorted({float(value) for value in cells["x"]})
    margin = 0.5
    if cells["octaves"].iloc[0]:
        axis.set_xscale("log", base=2)
        axis.set_xlim(values[0] * 2**-0.4, values[-1] * 2**0.4)
        if len(values) > most:
            values = [value for value in values if math.log2(value).is_integer()]
    else:
        axis.set_xlim(values[0] - margin, values[-1] + margin)
    values = values[:: math.ceil(len(values) / most)]
    axis.xaxis.set_major_locator(FixedLocator(values))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticklabels([f"{value:g}" for value in values])


def draw(data: FigureData) -> Figure:
    """Left: speed with 95 % intervals, the reference at 1. Right: bytes spilled, or registers."""
    x, hue = data.figure.x or "k", data.figure.hue
    cells = _cells(data, x, hue)
    lines = _lines(data, cells)
    dtypes = [dtype for dtype in data.sweep.dtypes if (cells["dtype"] == dtype).any()]
    shown = f"{dtypes[0]}, {data.size_text}" if len(dtypes) == 1 else data.size_text
    figure, axes = canvas(
        data,
        2.2 + 2.7 * len(dtypes),
        heading(data.sweep.title, shown),
        columns=2,
        rows=len(dtypes),
        sharex="col",
        sharey="col",
        gridspec_kw={"width_ratios": [2, 1]},
    )
    for dtype, left, right in zip(dtypes, axes[::2], axes[1::2], strict=True):
        _speed(left, lines, dtype)
        left.axhline(1, color=REFERENCE, ls="--", lw=1.6, label=data.reference_name)
        left.set_ylabel(f"speed over{' ' if len(data.reference_name) < 12 else chr(10)}{data.reference_name}")
        if len(dtypes) > 1:
            left.set_title(dtype)
        _pressure(right, lines, dtype)
        for axis, most in ((left, 9), (right, 6)):
            _ticks(axis, cells, most)
    for axis in axes[-2:]:
        axis.set_xlabel(f"{x} (taps = {x} + 1)" if x == "k" else x)
    twins = [line for line in lines if line.twin]
    if twins:
        label = f"{twins[0].label.split(', ')[0]} with the same {hue}"
        axes[0].plot([], [], color=REFERENCE, lw=1.2, ls=":", label=label)
    drawn = pd.concat([line.rows for line in lines])
    ratio_limits(axes[0], drawn)
    legend_below(figure, axes[0])
    return figure
