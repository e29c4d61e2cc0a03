"""Stencil: speed over the reference by one parameter, with the registers and spills that limit it; a row per dtype."""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures import base
from ladder.report.sweep_data import changing
from ladder.results.statistics import parameter, params_of

_LOGARITHMIC = 16  # from this ratio of the largest to the smallest x on, the axis counts octaves
_TESTED: dict[str, Any] = {"ms": 5, "lw": 1.6}
_TWIN: dict[str, Any] = {"lw": 1.2, "ls": ":"}


def _cells(data: base.FigureData, x: str, hue: str | None) -> pd.DataFrame:
    """Cells at the figure's size with `x`, the resources of their variants, and `kind`: what tells the lines apart."""
    rows = data.some(data.here())
    rows = rows.assign(x=parameter(rows, x).astype(float), params=rows["params"].map(params_of))
    kinds: dict[Any, str] = {}
    for _, own in rows.groupby("kernel")["params"]:
        names = [name for name in changing(list(own)) if name != x and hue in (None, name)]
        for index, params in own.items():
            # Words as they are, numbers with their names.
            given = {name: params[name] for name in names if name in params}.items()
            kinds[index] = ", ".join(one if isinstance(one, str) else f"{name} {one}" for name, one in given)
    resources = data.resources.drop_duplicates("variant").set_index("variant")[["local_bytes", "registers"]]
    return rows.assign(kind=pd.Series(kinds)).join(resources.astype(float), on="variant")


def _octaves(cells: pd.DataFrame) -> bool:
    return bool(0 < cells["x"].min() * _LOGARITHMIC <= cells["x"].max())


def _lines(data: base.FigureData, cells: pd.DataFrame) -> pd.DataFrame:
    """Cells by `line` and its `label`, each at its `place`, those of one kernel that differ in x and dtype only.

    A `twin` is of the reference's own kernel, and is of the line of the tested cells that it is like.
    """
    reference, octaves, twin = data.sweep.reference, _octaves(cells), None
    if reference.kernel is not None and set(cells["kernel"]) != {reference.kernel.name}:
        twin = reference.kernel.name
        # Not the very variant that the others are timed against.
        fixed = cells["params"].map(lambda params: reference.params.items() <= params.items())
        cells = cells[(cells["kernel"] != twin) | ~fixed]
    groups = dict(list(cells.groupby(["kernel", "kind"], sort=False)))
    tested = [(str(kernel), str(kind)) for kernel, kind in groups if kernel != twin]
    several = len({kernel for kernel, _ in tested}) > 1
    lines = []
    for index, (kernel, kind) in enumerate(tested):
        # A little aside of the other lines.
        aside = 0.09 * (index - (len(tested) - 1) / 2)
        label = ", ".join(part for part in (kernel if several or not kind else "", kind) if part)
        for name in (kernel, twin):
            if (name, kind) in groups:
                rows = groups[name, kind].sort_values("x")
                place = rows["x"] * 2 ** (0.3 * aside) if octaves else rows["x"] + aside
                lines.append(rows.assign(line=index, label=label, twin=name == twin, place=place))
    return pd.concat(lines)


def _pressure(axis: Axes, lines: pd.DataFrame) -> None:
    """Bytes spilled per thread; where nothing spills, the registers that were enough."""
    tested = lines[~lines["twin"]].groupby("label", sort=False)
    spills = tested["local_bytes"].max() > 0
    column, unit = ("local_bytes", "spilled bytes") if spills.any() else ("registers", "registers")
    for label, rows in tested:
        if spills[str(label)] or not spills.any():
            marker, color = (looks[rows["line"].iloc[0]] for looks in (base.MARKERS, base.PALETTE))
            axis.plot(rows["place"], rows[column], marker=marker, color=color, **_TESTED)
    axis.set(ylim=(0, None), ylabel=f"{unit} per thread")
    # Lines that lie on zero would cover each other: they are named instead.
    if not spills.any():
        axis.set_title("no variant spills", fontsize=10)
    elif not spills.all():
        axis.set_title("none: " + "; ".join(spills.index[~spills]), fontsize=9)


def _ticks(axis: Axes, cells: pd.DataFrame, most: int) -> None:
    """At most `most` of the values of x; of octaves the whole ones first."""
    values = sorted(set(cells["x"]))
    low, high = values[0], values[-1]
    octaves = _octaves(cells)
    if octaves and len(values) > most:
        values = [value for value in values if math.log2(value).is_integer()]
    if octaves:
        axis.set_xscale("log", base=2)
    base.only_ticks(axis, values[:: math.ceil(len(values) / most)])
    axis.set_xlim(*((low * 2**-0.4, high * 2**0.4) if octaves else (low - 0.5, high + 0.5)))


def draw(data: base.FigureData) -> Figure:
    """Left: speed with 95 % intervals, the reference at 1. Right: bytes spilled, or registers."""
    x, hue = data.figure.x or "k", data.figure.hue
    cells = _cells(data, x, hue)
    lines = _lines(data, cells)
    dtypes = [dtype for dtype in data.sweep.dtypes if (cells["dtype"] == dtype).any()]
    what = f"{dtypes[0]}, {data.size_text}" if len(dtypes) == 1 else data.size_text
    shape: dict[str, Any] = {"columns": 2, "rows": len(dtypes), "gridspec_kw": {"width_ratios": [2, 1]}}
    figure, axes = base.canvas(data, 2.2 + 2.7 * len(dtypes), what, sharex="col", sharey="col", **shape)
    reference = data.reference_name
    for dtype, left, right in zip(dtypes, axes[::2], axes[1::2], strict=True):
        own = lines[lines["dtype"] == dtype]
        for _, rows in own.groupby(["line", "twin"]):
            line = rows.iloc[0]
            if line["twin"]:
                left.plot(rows["place"], rows["speedup"], color=base.PALETTE[line["line"]], **_TWIN)
            else:
                base.points(left, line["line"], rows["place"], rows, "speedup", line["label"], **_TESTED)
        left.axhline(1, color=base.REFERENCE, ls="--", lw=1.6, label=reference)
        left.set_ylabel("speed over" + (" " if len(reference) < 12 else "\n") + reference)
        left.set_title(dtype if len(dtypes) > 1 else "")
        _pressure(right, own)
        _ticks(left, cells, 9)
        _ticks(right, cells, 6)
    for axis in axes[-2:]:
        axis.set_xlabel(f"{x} (taps = {x} + 1)" if x == "k" else x)
    for twin in lines[lines["twin"]]["kernel"].unique():
        axes[0].plot([], [], color=base.REFERENCE, label=f"{twin} with the same {hue}", **_TWIN)
    base.ratio_limits(axes[0], lines)
    return base.legend_below(figure, axes[0])
