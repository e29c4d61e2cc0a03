"""Steps that decide and write."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from ladder.catalogue.sweeps import named
from ladder.claims.decide import decide_tables
from ladder.claims.ledger import load_claims
from ladder.cli.asked import sweeps_of
from ladder.cli.options import Folder, SweepNames, project
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan import read_plan
from ladder.report.document import render
from ladder.results.statistics import records

Ledger = Annotated[Path | None, typer.Option("--claims", help="The ledger (default: config/claims.yaml).")]


def claims(context: typer.Context, folder_: Folder, names: SweepNames, ledger: Ledger = None) -> None:
    """Decide the claims from the tables."""
    folder, sweeps = RunFolder(folder_), sweeps_of(context, None)
    given = load_claims(ledger or project(context).claims, sweeps)
    for row in records(decide_tables(given, folder.tables, named(names, sweeps))):
        logging.info("%s: %s", row["id"], row["verdict"])


def report(context: typer.Context, folder_: Folder, sweeps: SweepNames) -> None:
    """Write report.md."""
    folder = RunFolder(folder_)
    plans = {name: read_plan(folder.plan(name)) for name in sweeps if folder.plan(name).is_file()}
    replace_file(folder.report, render(folder, sweeps_of(context, sweeps), plans).encode("utf-8"))
