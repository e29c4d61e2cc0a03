"""The step that writes the page."""

import typer

from ladder.cli.asked import sweeps_of
from ladder.cli.options import Beside, Folder, SweepNames, folders, project
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.page.document import render


def page(context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None) -> None:
    """Write index.html, which holds all tables and opens from anywhere."""
    folder = RunFolder(folder_)
    text = render(folder, sweeps_of(context, sweeps), project(context).root, folders(beside))
    replace_file(folder.page, text.encode("utf-8"))
