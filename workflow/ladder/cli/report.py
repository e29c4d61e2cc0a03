"""Steps that write the report and the page."""

import typer

from ladder.cli.load import sweeps_of
from ladder.cli.options import Beside, Folder, SweepNames, folders, project
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan_file import read_plan
from ladder.page.document import render
from ladder.report.document import write
from ladder.results.run_data import RunData


def report(context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None) -> None:
    """Write report.md, evidence.md, methodology.md and sweeps/NAME.md."""
    folder = RunFolder(folder_)
    plans = {name: read_plan(folder.plan(name)) for name in sweeps if folder.plan(name).is_file()}
    write(folder, RunData.read(folder, sweeps_of(context, sweeps)), plans, beside=folders(beside))


def page(context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None) -> None:
    """Write index.html, which holds all tables and opens from anywhere."""
    folder = RunFolder(folder_)
    data = RunData.read(folder, sweeps_of(context, sweeps))
    text = render(folder, data, project(context).root, folders(beside))
    replace_file(folder.page, text.encode("utf-8"))
