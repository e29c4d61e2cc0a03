"""Every figure kind and the function that draws it. A new figure is one function and its line here."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.sweep import Sweep
from ladder.report.figures import banks, curves, heatmap, roofline, rungs, shapes, stencil
from ladder.report.figures.base import FigureData, NoDataError, message, to_png
from ladder.report.sweep_data import of_sweep

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


def draw_sweep(
    sweep: Sweep, frames: Mapping[str, pd.DataFrame], environment: Mapping[str, Any], folder: RunFolder
) -> None:
    """Draw every figure that a sweep asks for, as FOLDER/figures/SWEEP-INDEX-KIND.png."""
    own = vars(of_sweep(sweep, frames, environment))
    for figure, name in zip(sweep.figures, sweep.figure_names(), strict=True):
        replace_file(folder.figure(sweep.name, name), render(FigureData(**own, figure=figure)))
