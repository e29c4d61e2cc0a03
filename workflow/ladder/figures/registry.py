"""Every figure kind and the function that draws it. A new figure is one function and its line here."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from ladder.figures import banks, curves, heatmap, roofline, rungs, shapes, stencil
from ladder.figures.data import FigureData, NoDataError
from ladder.figures.style import message, to_png

FIGURES: dict[str, Callable[[FigureData], Figure]] = {
    "ladder": rungs.draw,
    "curves": curves.draw,
    "heatmap": heatmap.draw,
    "roofline": roofline.draw,
    "banks": banks.draw,
    "stencil": stencil.draw,
    "shapes": shapes.draw,
}


def render(data: FigureData) -> bytes:
    """PNG of the figure asked for; where it has no data, a PNG that says why."""
    try:
        return to_png(FIGURES[data.figure.kind](data))
    except NoDataError as lack:
        return to_png(message(data, str(lack)))
