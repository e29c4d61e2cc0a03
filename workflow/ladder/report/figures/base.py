"""What every figure is made with: its data, and the one look of all. PNG of 1152 pixels width, legible at 900."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ladder.report.sweep_data import FigureData

DPI = 144
WIDTH = 8.0
PALETTE = [str(color) for color in sns.color_palette("colorblind").as_hex()]
REFERENCE = "#333333"
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "*", "<", ">"]
MUTED = "#666666"
_SETTINGS: dict[str, Any] = {"font.size": 11, "axes.titlesize": 12, "axes.labelsize": 11}
_SETTINGS |= dict.fromkeys(["xtick.labelsize", "ytick.labelsize", "legend.fontsize"], 10)
_SETTINGS |= {"axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False}
_SETTINGS |= {"font.family": "DejaVu Sans", "axes.edgecolor": "#999999", "grid.color": "#e4e4e4"}
_LEGEND_WIDTH = 116  # characters of a legend that fit side by side, each line or mark counted as eight


def canvas(
    data: FigureData, height: float, what: str = "", columns: int = 1, rows: int = 1, **more: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with title and device line, and its axes, row after row; `what` it shows of the sweep."""
    sns.set_theme(style="whitegrid", palette="colorblind", rc=_SETTINGS)
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **more)
    title = data.sweep.title
    if what:
        title += f" {what[0].upper()}{what[1:]}" if title.endswith(("?", "!", ".")) else f": {what}"
    title = textwrap.fill(title, 66)
    lines = title.count("\n") + 1
    # Room for the two headings in inches, whatever the height.
    top = 1 - (0.32 + 0.22 * lines) / height
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, top), w_pad=0.09, h_pad=0.06)
    figure.text(0.012, 1 - 0.09 / height, title, fontsize=13, fontweight="bold", va="top")
    device = str(data.gpu.get("name") or data.source.get("device") or "unknown device")
    published = "published run, " if data.environment.get("timings_from") == "published" else ""
    if date := str(data.source.get("started") or "")[:10]:
        device += f", {published}{date}"
    figure.text(0.012, 1 - (0.11 + 0.24 * lines) / height, device, fontsize=9.5, color=MUTED, va="top")
    return figure, list(axes.flat)


def message(data: FigureData, reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure, (axis,) = canvas(data, 2.4)
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
