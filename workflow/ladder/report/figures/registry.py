"""Every figure kind and the function that draws it. A new figure is one function and its line here."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from matplotlib.figure import Figure

from ladder.model.files import replace_file
from ladder.report.figures import banks, curves, heatmap, roofline, rungs, shapes, stencil
from ladder.report.figures.base import FigureData, NoDataError, message, to_png
from ladder.report.sweep_data import SweepData

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


def _draw(data: SweepData, folder: Path) -> str:
    sweep = data.sweep
    for figure, name in zip(sweep.figures, sweep.figure_names(), strict=True):
        replace_file(folder / name, render(FigureData(**vars(data), figure=figure)))
    return sweep.name


def draw_sweeps(parts: Iterable[SweepData], folder: Path, jobs: int = 1) -> Iterator[str]:
    """Draw the figures of sweeps, `jobs` sweeps at once, as FOLDER/SWEEP-INDEX-KIND.png; yields the sweeps drawn."""
    # Forked, so that plotting is not imported anew.
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        drawing = [pool.submit(_draw, data, folder) for data in parts]
        yield from (done.result() for done in as_completed(drawing))
