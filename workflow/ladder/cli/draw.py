"""The step that draws."""

import logging
from typing import Annotated

import typer

from ladder.cli.asked import sweeps_of
from ladder.cli.options import Folder, Into, Published, SweepNames
from ladder.model.folders import RunFolder
from ladder.model.schemas import SWEEP_TABLES
from ladder.report.figures.registry import draw_sweeps
from ladder.report.sweep_data import of_sweep
from ladder.results import tables
from ladder.results.archive import records_of
from ladder.results.environment import measured_on


def figures(
    context: typer.Context,
    folder_: Folder,
    sweeps: SweepNames,
    published: Published = None,
    into: Into = None,
    jobs: Annotated[int, typer.Option(min=1, help="Sweeps at once.")] = 1,
) -> None:
    """Draw the figures of sweeps from their tables, as figures/SWEEP-INDEX-KIND.png."""
    folder, parts = RunFolder(folder_), []
    frames = {table: tables.read(table, into or folder.tables) for table in SWEEP_TABLES}
    sessions, records = frames["sessions"], records_of(folder, published, [])
    for name, sweep in sweeps_of(context, sweeps).items():
        measured = measured_on(records, sessions[sessions["sweep"] == name])
        whose = {"published": measured, "timings_from": "published"} if published is not None else measured
        parts.append(of_sweep(sweep, frames, whose))
    for done, name in enumerate(draw_sweeps(parts, into or folder.figures, jobs), 1):
        logging.info("[%d/%d] %s", done, len(parts), name)
