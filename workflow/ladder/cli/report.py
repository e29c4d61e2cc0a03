"""Steps that draw and write."""

from __future__ import annotations

import typer

from ladder.cli.options import Folder, Published, SweepName, SweepNames, sweeps_of
from ladder.cli.tables import records_of
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan import read_plan
from ladder.model.schemas import SWEEP_TABLES
from ladder.report.document import render
from ladder.report.figures.registry import draw_sweep
from ladder.results import tables
from ladder.results.environment import measured_on


def figures(context: typer.Context, folder_: Folder, sweep: SweepName, published: Published = None) -> None:
    """Draw the figures of a sweep, as figures/SWEEP-INDEX-KIND.png."""
    folder = RunFolder(folder_)
    frames = {table: tables.read(table, folder.sweep(sweep)) for table in SWEEP_TABLES}
    used = frames["sessions"]["session"].dropna().unique()
    measured = measured_on(records_of(folder, published), used)
    whose = {"published": measured, "timings_from": "published"} if published is not None else measured
    draw_sweep(sweeps_of(context, [sweep])[sweep], frames, whose, folder)


def report(context: typer.Context, folder_: Folder, sweeps: SweepNames) -> None:
    """Write report.md."""
    folder = RunFolder(folder_)
    plans = {name: read_plan(folder.plan(name)) for name in sweeps if folder.plan(name).is_file()}
    replace_file(folder.report, render(folder, sweeps_of(context, sweeps), plans).encode("utf-8"))
