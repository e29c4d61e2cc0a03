"""Steps that decide, and write the report and the page."""

import logging

import typer

from ladder.claims.ledger import decide_tables
from ladder.cli.asked import sweeps_of
from ladder.cli.options import Beside, Folder, SweepNames, folders, project
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan import read_plan
from ladder.page.document import render
from ladder.report.document import write
from ladder.report.evidence import Evidence
from ladder.results.statistics import records


def claims(context: typer.Context, folder_: Folder, names: SweepNames) -> None:
    """Decide the claims from the tables."""
    for row in records(decide_tables(RunFolder(folder_).tables, sweeps_of(context, names))):
        logging.info("%s: %s: %s", row["id"], row["verdict"], row["part"])


def report(context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None) -> None:
    """Write report.md, methodology.md and sweeps/NAME.md."""
    folder = RunFolder(folder_)
    plans = {name: read_plan(folder.plan(name)) for name in sweeps if folder.plan(name).is_file()}
    write(folder, Evidence.read(folder, sweeps_of(context, sweeps)), plans, beside=folders(beside))


def page(context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None) -> None:
    """Write index.html, which holds all tables and opens from anywhere."""
    folder = RunFolder(folder_)
    data = Evidence.read(folder, sweeps_of(context, sweeps))
    text = render(folder, data, project(context).root, folders(beside))
    replace_file(folder.page, text.encode("utf-8"))
