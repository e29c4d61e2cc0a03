"""The one look of all figures: palette, sizes, titles. PNG of 1152 pixels width, legible at 900."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ladder.report.figures.data import FigureData

DPI = 144
WIDTH = 8.0
PALETTE = [str(color) for color in sns.color_palette("colorblind").as_hex()]
REFERENCE = "#333333"
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "*", "<", ">"]
MUTED = "#666666"


def _settings() -> Any:
    sns.set_theme(style="whitegrid", palette="colorblind")
    return {
        "font.family": "DejaVu Sans",
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.labelsize": 11,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "legend.fontsize": 10,
        "axes.edgecolor": "#999999",
        "grid.color": "#e4e4e4",
        "svg.hashsalt": "ladder",
    }


def canvas(
    data: FigureData, height: float, title: str, columns: int = 1, rows: int = 1, **more: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with title and device line, and its axes, row after row."""
    plt.rcParams.update(_settings())
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height), dpi=DPI, squeeze=False, **more)
    title = textwrap.fill(title, 66)
    lines = title.count("\n") + 1
    # Room for the two headings in inches, whatever the height.
    top = 1 - (0.32 + 0.22 * lines) / height
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, top), w_pad=0.09, h_pad=0.06)
    figure.text(0.012, 1 - 0.09 / height, title, fontsize=13, fontweight="bold", va="top")
    figure.text(0.012, 1 - (0.11 + 0.24 * lines) / height, data.subtitle, fontsize=9.5, color=MUTED, va="top")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat)


def heading(title: str, rest: str) -> str:
    """A sweep's title and what a figure shows of it, as one line."""
    return f"{title} {rest[0].upper()}{rest[1:]}" if title.endswith(("?", "!", ".")) else f"{title}: {rest}"


def message(data: FigureData, reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure, (axis,) = canvas(data, 2.4, data.sweep.title)
    axis.set_axis_off()
    text = textwrap.fill(f"No {data.figure.kind} figure: {reason}.", 80)
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, fontsize=12, color=MUTED)
    return figure


def to_png(figure: Figure) -> bytes:
    """PNG bytes; no date inside, so that equal data give equal files."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()


def ratio_limits(axis: Axes, rows: pd.DataFrame) -> None:
    """Speed-ups are read against 1, so the axis shows those of `rows` and 1, not 0."""
    low, high = min(1.0, float(rows["speedup_low"].min())), max(1.0, float(rows["speedup_high"].max()))
    margin = 0.08 * (high - low) + 0.005
    axis.set_ylim(low - margin, high + margin)


_LEGEND_CHARACTERS = 116
"""How many characters of a legend fit side by side, its lines and marks counted as eight each."""


def legend_columns(labels: Sequence[str]) -> int:
    """How many columns a legend of these labels has room for."""
    longest = max(len(line) for label in labels for line in label.splitlines())
    return max(min(_LEGEND_CHARACTERS // (longest + 8), 4, len(labels)), 1)


def legend_below(figure: Figure, axis: Axes) -> None:
    """A legend under the axes, where it hides no data, in as many columns as fit."""
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        columns = legend_columns(labels)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def plain_number(value: float) -> str:
    """Two or three significant digits, for annotations."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def some_ticks(value: float, _: int) -> str:
    """Between powers of ten 2, 3 and 5 are enough."""
    leading = round(value / 10 ** math.floor(math.log10(value)))
    return f"{value:g}" if leading in (2, 3, 5) else ""
