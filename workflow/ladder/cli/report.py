"""Steps that decide, draw and write."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from ladder.claims.decide import decide_tables
from ladder.claims.ledger import load_claims
from ladder.cli.options import Folder, Published, SweepName, SweepNames, project, sweeps_of
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan import read_plan
from ladder.model.schemas import SWEEP_TABLES
from ladder.report.document import render
from ladder.report.figures.registry import draw_sweep
from ladder.results import tables
from ladder.results.archive import records_of
from ladder.results.environment import measured_on
from ladder.results.statistics import records

Ledger = Annotated[Path | None, typer.Option("--claims", help="The ledger (default: config/claims.yaml).")]


def claims(context: typer.Context, folder_: Folder, ledger: Ledger = None) -> None:
    """Decide the claims from the tables."""
    folder, sweeps = RunFolder(folder_), sweeps_of(context, None)
    given = load_claims(ledger or project(context).claims, sweeps)
    there = {name: sweep for name, sweep in sweeps.items() if folder.sweep(name).is_dir()}
    for row in records(decide_tables(given, folder.tables, there)):
        logging.info("%s: %s", row["id"], row["verdict"])


def figures(context: typer.Context, folder_: Folder, sweep: SweepName, published: Published = None) -> None:
    """Draw the figures of a sweep, as figures/SWEEP-INDEX-KIND.png."""
    folder = RunFolder(folder_)
    frames = {table: tables.read(table, folder.sweep(sweep)) for table in SWEEP_TABLES}
    measured = measured_on(records_of(folder, published, []), frames["sessions"])
    whose = {"published": measured, "timings_from": "published"} if published is not None else measured
    draw_sweep(sweeps_of(context, [sweep])[sweep], frames, whose, folder)


def report(context: typer.Context, folder_: Folder, sweeps: SweepNames) -> None:
    """Write report.md."""
    folder = RunFolder(folder_)
    plans = {name: read_plan(folder.plan(name)) for name in sweeps if folder.plan(name).is_file()}
    replace_file(folder.report, render(folder, sweeps_of(context, sweeps), plans).encode("utf-8"))
