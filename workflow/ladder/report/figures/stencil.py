"""Stencil: speed over the reference by one parameter, with the registers and spills that limit it; a row per dtype."""

import json
import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures import base, style
from ladder.report.sweep_data import FigureData
from ladder.results.statistics import changing, parameter

_LOGARITHMIC = 16  # from this ratio of the largest to the smallest x on, the axis counts octaves
_TESTED: dict[str, Any] = {"ms": 5, "lw": 1.6}
_BASELINE: dict[str, Any] = {"lw": 1.2, "ls": ":"}


def _cells(data: FigureData, x: str, hue: str | None) -> pd.DataFrame:
    """Cells at the figure's size with `x`, the resources of their variants, and `kind`: what distinguishes lines."""
    rows = data.some(data.here)
    rows = rows.assign(x=parameter(rows, x).astype(float), params=rows["params"].map(json.loads))
    kinds: dict[Any, str] = {}
    for _, own in rows.groupby("kernel")["params"]:
        names = [name for name in changing(list(own)) if name != x and hue in (None, name)]
        for index, params in own.items():
            # Words as they are, numbers with their names.
            given = {name: params[name] for name in names if name in params}.items()
            kinds[index] = ", ".join(one if isinstance(one, str) else f"{name} {one}" for name, one in given)
    resources = data.resources.drop_duplicates("variant").set_index("variant")[["local_bytes", "registers"]]
    return rows.assign(kind=pd.Series(kinds)).join(resources.astype(float), on="variant")


def _lines(data: FigureData, cells: pd.DataFrame, octaves: bool) -> pd.DataFrame:
    """Cells by `line` and its `label`, each at its `place`, those of one kernel that differ in x and dtype only.

    A `baseline` is of the reference's own kernel, and is of the line of the tested cells that it is like.
    """
    reference, baseline = data.sweep.reference, ""
    if reference.kernel is not None and set(cells["kernel"]) != {reference.kernel.name}:
        baseline = reference.kernel.name
        # Not the very variant that the others are timed against.
        fixed = cells["params"].map(lambda params: reference.params.items() <= params.items())
        cells = cells[(cells["kernel"] != baseline) | ~fixed]
    tested = cells[cells["kernel"] != baseline]
    lines = tested[["kernel", "kind"]].drop_duplicates().reset_index(drop=True)
    named = (lines["kernel"].nunique() > 1) | (lines["kind"] == "")
    lines["label"] = (lines["kernel"].where(named, "") + ", " + lines["kind"]).str.strip(", ")
    lines["line"] = lines.index
    others = cells[cells["kernel"] == baseline].merge(lines.drop(columns="kernel"))
    found = pd.concat([tested.merge(lines), others]).sort_values(["line", "x"])
    # A little aside of the other lines.
    aside = 0.09 * (found["line"] - (len(lines) - 1) / 2)
    place = found["x"] * 2 ** (0.3 * aside) if octaves else found["x"] + aside
    return found.assign(baseline=found["kernel"] == baseline, place=place)


def _pressure(axis: Axes, lines: pd.DataFrame) -> None:
    """Bytes spilled per thread; where nothing spills, the registers that were enough."""
    tested = lines[~lines["baseline"]].groupby("label", sort=False)
    spills = tested["local_bytes"].max() > 0
    column, unit = ("local_bytes", "spilled bytes") if spills.any() else ("registers", "registers")
    for label, rows in tested:
        if spills[str(label)] or not spills.any():
            marker, color = (looks[rows["line"].iloc[0]] for looks in (style.MARKERS, style.PALETTE))
            axis.plot(rows["place"], rows[column], marker=marker, color=color, **_TESTED)
    axis.set(ylim=(0, None), ylabel=f"{unit} per thread")
    # Lines that lie on zero would cover each other: they are named instead.
    if not spills.any():
        axis.set_title("no variant spills", fontsize=10)
    elif not spills.all():
        axis.set_title("none: " + "; ".join(spills.index[~spills]), fontsize=9)


def _ticks(axis: Axes, values: list[float], octaves: bool, most: int) -> None:
    """At most `most` of the values of x; of octaves the whole ones first."""
    low, high = values[0], values[-1]
    if octaves:
        axis.set_xscale("log", base=2)
        whole = [value for value in values if math.log2(value).is_integer()]
        values = whole if len(values) > most else values
    base.only_ticks(axis, values[:: math.ceil(len(values) / most)])
    axis.set_xlim(*((low * 2**-0.4, high * 2**0.4) if octaves else (low - 0.5, high + 0.5)))


def draw(data: FigureData) -> Figure:
    """Left: speed with 95 % intervals, the reference at 1. Right: bytes spilled, or registers."""
    x, hue = data.figure.x or "k", data.figure.hue
    cells = _cells(data, x, hue)
    values = sorted(set(cells["x"]))
    octaves = 0 < values[0] * _LOGARITHMIC <= values[-1]
    lines = _lines(data, cells, octaves)
    dtypes = [dtype for dtype in data.sweep.dtypes if (cells["dtype"] == dtype).any()]
    what = f"{dtypes[0]}, {data.size_text}" if len(dtypes) == 1 else data.size_text
    shape: dict[str, Any] = {"columns": 2, "rows": len(dtypes), "gridspec_kw": {"width_ratios": [2, 1]}}
    figure, axes = base.canvas(data, 2.2 + 2.7 * len(dtypes), what, sharex="col", sharey="col", **shape)
    reference = data.reference_name
    for dtype, left, right in zip(dtypes, axes[::2], axes[1::2], strict=True):
        own = lines[lines["dtype"] == dtype]
        for _, rows in own.groupby(["line", "baseline"]):
            line = rows.iloc[0]
            if line["baseline"]:
                left.plot(rows["place"], rows["speedup"], color=style.PALETTE[line["line"]], **_BASELINE)
            else:
                base.points(left, line["line"], rows["place"], rows, "speedup", line["label"], **_TESTED)
        left.axhline(1, color=style.REFERENCE, ls="--", lw=1.6, label=reference)
        left.set_ylabel("speed over" + (" " if len(reference) < 12 else "\n") + reference)
        left.set_title(dtype if len(dtypes) > 1 else "")
        _pressure(right, own)
        _ticks(left, values, octaves, 9)
        _ticks(right, values, octaves, 6)
    for axis in axes[-2:]:
        axis.set_xlabel(f"{x} (taps = {x} + 1)" if x == "k" else x)
    for kernel in lines[lines["baseline"]]["kernel"].unique():
        axes[0].plot([], [], color=style.REFERENCE, label=f"{kernel} with the same {hue}", **_BASELINE)
    base.ratio_limits(axes[0], lines)
    return base.legend_below(figure, axes[0])
