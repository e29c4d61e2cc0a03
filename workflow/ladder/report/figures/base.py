"""What every figure is made with: its data, and the one look of all. PNG of 1152 pixels width, legible at 830."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

from ladder.report.figures.style import AHEAD, BEHIND, DPI, MUTED, TIE, WIDTH, apply
from ladder.report.markdown import cut
from ladder.report.titles import message as title_of
from ladder.results.statistics import estimate, predicted
from ladder.results.sweep_data import FigureData
from ladder.results.verdicts import FASTER, SLOWER, TIED

_TITLE_WIDTH, _ABOUT_WIDTH = 70, 112  # characters of a line
_NAME_WIDTH = 46  # characters of a line of a name beside the axes
_LONGEST = 160  # characters of a title that a figure has room for
_LEGEND_WIDTH = 116  # characters of a legend that fit side by side, each line or mark counted as eight
_FACTORS = [
    [one * 10.0**power for power in range(-4, 4) for one in ones]
    for ones in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))
]
_FEW = 3  # ticks of an axis of factors
VERDICTS: Mapping[str, str] = {FASTER: AHEAD, SLOWER: BEHIND, TIED: TIE}
"""Verdicts of a range of speeds about 1, with their colours."""


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
    title = textwrap.fill(cut(title_of(data) if title is None else title, _LONGEST), _TITLE_WIDTH)
    device = cut(str(data.gpu.get("name") or data.source.get("device") or "unknown device"), _LONGEST)
    published = "published run, " if data.environment.get("timings_from") == "published" else ""
    if data.days:
        device += f", {published}{data.days}"
    device = device.replace(" ", "\u00a0")
    shown = [cut(data.sweep.title, _LONGEST), what, device]
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
    text = textwrap.fill(cut(f"No {data.figure.kind} figure: {reason}.", 3 * _LONGEST), 80)
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, fontsize=12, color=MUTED)
    return figure


def interval(
    axis: Axes, at: float, row: Mapping[str, Any], color: str, upright: bool = False, **mark: Any
) -> None:
    """A speed-up: its mark, thick what was measured (95 %), thin what another GPU of the model would read."""
    measured, elsewhere = estimate(row, "speedup"), predicted(row)
    lines = axis.vlines if upright else axis.hlines
    lines([at], measured.low, measured.high, color=color, lw=3.2, zorder=3.5)
    if elsewhere.known:
        lines([at], elsewhere.low, elsewhere.high, color=color, lw=1.0, zorder=3)
    place = (at, measured.value) if upright else (measured.value, at)
    look: dict[str, Any] = {"marker": "o", "ms": 5, **mark}
    axis.plot([place[0]], [place[1]], ls="", color=color, zorder=4, **look)


RANGES = "thick: measured, 95 %; thin: what another GPU would read"
"""What the lines of `interval` are, for a label."""


def factor_axis(axis: Axes, low: float, high: float, upright: bool = False, most: int = 8) -> None:
    """A logarithmic axis of factors from `low` to `high` and a little beyond, with `most` ticks that people read."""
    room = (high / low) ** 0.04
    low, high = low / room, high * room
    own = axis.yaxis if upright else axis.xaxis
    (axis.set_yscale if upright else axis.set_xscale)("log")
    for factors in _FACTORS:
        ticks = [tick for tick in factors if low <= tick <= high]
        if len(ticks) <= most:
            break
    if len(ticks) < _FEW or high < 2 * low:
        found = MaxNLocator(min(most, 6), steps=[1, 2, 5, 10]).tick_values(low, high)
        ticks = [float(tick) for tick in found if low <= tick <= high]
    own.set_major_locator(NullLocator())
    own.set_minor_locator(NullLocator())
    own.set_minor_formatter(NullFormatter())
    labels = [f"{tick:.4g}" for tick in ticks]
    if len({*labels}) < len(ticks):  # between ends that are nearly alike
        labels = [f"{tick:.9g}" for tick in ticks]
    own.set_ticks(ticks, labels)
    (axis.set_ylim if upright else axis.set_xlim)(low, high)


def broken(name: str) -> str:
    """A name in lines that leave room for the axes beside it."""
    return textwrap.fill(name, _NAME_WIDTH)


def only_ticks(axis: Axes, values: Sequence[float], labels: Sequence[str] | None = None) -> None:
    """Ticks of the x axis at these values and no others."""
    axis.set_xticks(values, labels or [f"{value:g}" for value in values])
    axis.xaxis.minorticks_off()


def at_ends(
    axis: Axes, inches: float, ends: Sequence[tuple[float, float, str, str]], size: float = 9
) -> None:
    """Name lines at their right ends: x, y, text and colour of each; `inches` is the height of the axes.

    Limits and scales are set before. Names that would touch stand apart, with a thin line to their own end.
    """
    flat = axis.transAxes.inverted()
    heights = {text: sum(1.25 * size / 72 / inches for _ in text.splitlines()) for _, _, text, _ in ends}
    wanted = []
    for x, y, text, color in ends:
        level = float(flat.transform(axis.transData.transform((x, y)))[1])
        wanted.append((min(max(level, 0.0), 1.0), x, y, text, color))
    wanted.sort(key=lambda one: one[0])
    places = [one[0] for one in wanted]
    tall = [heights[one[3]] for one in wanted]
    for _ in range(200):  # neighbours push one another apart until none touches
        moved = False
        for lower, upper in itertools.pairwise(range(len(places))):
            overlap = (tall[lower] + tall[upper]) / 2 - (places[upper] - places[lower])
            if overlap > 1e-4:
                places[lower], places[upper] = places[lower] - overlap / 2, places[upper] + overlap / 2
                moved = True
        if places:  # none leaves the axes
            places[0], places[-1] = max(places[0], 0.0), min(places[-1], 1.0)
        if not moved:
            break
    for place, (level, x, _, text, color) in zip(places, wanted, strict=True):
        across = float(flat.transform(axis.transData.transform((x, axis.get_ylim()[0])))[0])
        axis.plot(
            [across, 1.01, 1.03],
            [level, level if across > 0.9 else place, place],
            color=color,
            lw=0.6,
            transform=axis.transAxes,
            clip_on=False,
            zorder=1,
            alpha=0.7,
        )
        look: dict[str, Any] = {"va": "center", "ha": "left", "color": color, "fontsize": size}
        axis.annotate(text, (1.035, place), xycoords="axes fraction", annotation_clip=False, **look)


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
