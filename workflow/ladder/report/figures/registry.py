"""Every figure kind and the function that draws it. A new figure is one function and its line here."""

import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from ladder.measure.process_lifetime import die_with_parent
from ladder.model.files import replace_file
from ladder.report.figures import banks, curves, heatmap, ladder, roofline, shapes
from ladder.report.figures.base import message
from ladder.results.statistics import listed
from ladder.results.sweep_data import FigureData, NoDataError, SweepData

FIGURES: dict[str, Callable[[FigureData], Figure]] = {
    "ladder": ladder.draw,
    "curves": curves.draw,
    "heatmap": heatmap.draw,
    "roofline": roofline.draw,
    "banks": banks.draw,
    "shapes": shapes.draw,
}


def render(data: FigureData) -> bytes:
    """PNG of a figure; where it has no data, a PNG that says why. Equal data give equal bytes."""
    try:
        drawing = FIGURES[data.figure.kind](data)
    except NoDataError as error:
        drawing = message(data, str(error))
    drawn, png = io.BytesIO(), io.BytesIO()
    drawing.savefig(drawn)
    # A palette of 256 colours shows the same, and takes a third of the bytes in a repository.
    Image.open(drawn).convert("RGB").quantize().save(png, "PNG", optimize=True)
    return png.getvalue()


def draw_sweep(data: SweepData, folder: Path, titles: Mapping[str, str]) -> str:
    """Draw the figures of a sweep. What matplotlib says of one, such as letters that no font has, is a warning."""
    names = data.sweep.figure_names()
    for figure, name in zip(data.sweep.figures, names, strict=True):
        drawn = data.drawn(figure, titles.get(name, ""))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            replace_file(folder / name, render(drawn))
        said = dict.fromkeys(str(warning.message) for warning in caught)
        if said:
            logging.warning("warning: %s: %s", folder / name, listed([*said], 1))
    return data.sweep.name


def draw_sweeps(
    parts: Iterable[SweepData],
    folder: Path,
    jobs: int,
    titles: Mapping[str, str],
) -> Iterator[str]:
    """Draw the figures of sweeps, `jobs` sweeps at once, as FOLDER/SWEEP-INDEX-KIND.png; yields the sweeps drawn.

    `titles`: those of figures that show an answer, by the files' names.
    """
    # Forked, so that plotting is not imported anew.
    with ProcessPoolExecutor(jobs, get_context("fork"), die_with_parent) as pool:
        drawing = [pool.submit(draw_sweep, data, folder, titles) for data in parts]
        for done in as_completed(drawing):
            yield done.result()
