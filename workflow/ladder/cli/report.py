"""The step that writes report and page."""

import typer

from ladder.cli.load import sweeps_of
from ladder.cli.options import Beside, Folder, SweepNames, folders, project
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan_file import read_plan
from ladder.page.document import render
from ladder.report.document import write
from ladder.results.run_data import RunData


def report(
    context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None
) -> None:
    """Write report.md, evidence.md, methodology.md, sweeps/NAME.md, and index.html, which holds all tables."""
    folder = RunFolder(folder_)
    plans = {
        name: read_plan(folder.plan(name))
        for name in sweeps
        if folder.plan(name).is_file()
    }
    beside_it = folders(beside)
    data = RunData.read(folder, sweeps_of(context, sweeps))
    others = [(one, RunData.read(one, data.sweeps)) for one in beside_it]
    write(folder, data, plans, beside=others)
    replace_file(
        folder.page, render(folder, data, project(context).root, others).encode("utf-8")
    )
