"""The step that writes report and page."""

import typer

from ladder.cli.load import sweeps_of
from ladder.cli.options import Beside, Folder, SweepNames, project, with_tables
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
    paths = {name: folder.plan(name) for name in sweeps}
    plans = {name: read_plan(path) for name, path in paths.items() if path.is_file()}
    runs = [*map(with_tables, beside or ())]
    data = RunData.read(folder, sweeps_of(context, sweeps))
    others = [(run, RunData.read(run, data.sweeps)) for run in runs]
    write(folder, data, plans, beside=others)
    page = render(folder, data, project(context).root, others)
    replace_file(folder.page, page.encode("utf-8"))
