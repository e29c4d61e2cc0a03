"""What every figure is made with: its data, and the one look of all. PNG of 1152 pixels width, legible at 900."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ladder.report.figures.style import DPI, MARKERS, MUTED, PALETTE, REFERENCE, WIDTH, apply
from ladder.report.messages import message as title_of
from ladder.report.sweep_data import FigureData

_TITLE_WIDTH, _ABOUT_WIDTH = 70, 112  # characters of a line
_LEGEND_WIDTH = 116  # characters of a legend that fit side by side, each line or mark counted as eight


def canvas(
    data: FigureData,
    height: float,
    what: str = "",
    columns: int = 1,
    rows: int = 1,
    title: str | None = None,
    **more: Any,
) -> tuple[Figure, list[Axes]]:
    """A figure with its message as its title, below it what it shows of which sweep and device, and its axes."""
    apply()
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    title = textwrap.fill(title_of(data) if title is None else title, _TITLE_WIDTH)
    device = str(data.gpu.get("name") or data.source.get("device") or "unknown device")
    published = "published run, " if data.environment.get("timings_from") == "published" else ""
    if date := str(data.source.get("started") or "")[:10]:
        device += f", {published}{date}"
    device = device.replace(" ", "\u00a0")
    shown = [data.sweep.title, what, device]
    about = textwrap.fill(" · ".join(part for part in shown if part), _ABOUT_WIDTH)
    lines, more_lines = title.count("\n") + 1, about.count("\n") + 1
    # Room for the two headings in inches, whatever the height.
    top = 1 - (0.14 + 0.22 * lines + 0.18 * more_lines) / height
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, top), w_pad=0.09, h_pad=0.06)
    figure.text(0.012, 1 - 0.09 / height, title, fontsize=13, fontweight="bold", va="top")
    below = 1 - (0.11 + 0.24 * lines) / height
    figure.text(0.012, below, about, fontsize=9.5, color=MUTED, va="top")
    return figure, list(axes.flat)


def message(data: FigureData, reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure, (axis,) = canvas(data, 2.4, title=data.sweep.title)
    axis.set_axis_off()
    text = textwrap.fill(f"No {data.figure.kind} figure: {reason}.", 80)
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, fontsize=12, color=MUTED)
    return figure


def error_bars(rows: pd.DataFrame, column: str) -> list["pd.Series[float]"]:
    """How far the 95 % interval of a column reaches below and above it; a rate's follows from the time's."""
    value = rows[column].astype(float)
    if f"{column}_low" in rows:
        low, high = rows[f"{column}_low"], rows[f"{column}_high"]
    else:
        work = value * rows["median_us"]
        low, high = work / rows["median_us_high"], work / rows["median_us_low"]
    return [(value - low).clip(lower=0), (high - value).clip(lower=0)]


def points(
    axis: Axes, index: int, x: "pd.Series[float]", rows: pd.DataFrame, column: str, label: str, **look: Any
) -> None:
    """Values with their 95 % intervals, in the colour and the mark of a figure's `index`-th variant."""
    look |= {"marker": MARKERS[index % len(MARKERS)], "color": PALETTE[index % len(PALETTE)], "capsize": 3}
    axis.errorbar(x, rows[column], yerr=error_bars(rows, column), label=label, **look)


def ratio_limits(axis: Axes, rows: pd.DataFrame) -> None:
    """Speed-ups are read against 1, so the axis shows those of `rows` and 1, not 0."""
    low, high = min(1.0, float(rows["speedup_low"].min())), max(1.0, float(rows["speedup_high"].max()))
    margin = 0.08 * (high - low) + 0.005
    axis.set_ylim(low - margin, high + margin)


def only_ticks(axis: Axes, values: Sequence[float], labels: Sequence[str] | None = None) -> None:
    """Ticks of the x axis at these values and no others."""
    axis.set_xticks(values, labels or [f"{value:g}" for value in values])
    axis.xaxis.minorticks_off()


def above(axis: Axes, x: float, text: str, **more: Any) -> None:
    """Words that name a vertical line at `x`, above the axes."""
    more |= {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "color": REFERENCE}
    axis.annotate(text, (x, 1), va="bottom", **more)


def legend_columns(labels: Sequence[str]) -> int:
    """How many columns a legend of these labels has room for."""
    longest = max(len(line) for label in labels for line in label.splitlines())
    return max(min(_LEGEND_WIDTH // (longest + 8), 4, len(labels)), 1)


def legend_below(figure: Figure, axis: Axes) -> Figure:
    """The figure with a legend under the axes, where it hides no data, in as many columns as fit."""
    handles, labels = axis.get_legend_handles_labels()
    columns = legend_columns(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def some_ticks(value: float, _: float) -> str:
    """Between powers of ten 2, 3 and 5 are enough."""
    leading = round(value / 10 ** math.floor(math.log10(value)))
    return f"{value:g}" if leading in (2, 3, 5) else ""
