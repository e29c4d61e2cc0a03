"""The step that writes the page."""

from pathlib import Path
from typing import Annotated

import typer

from ladder.cli.asked import sweeps_of
from ladder.cli.options import Folder, SweepNames, project
from ladder.model.files import replace_file
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.page.document import render

_BESIDE = "Folder of another run, or a published one, to compare with; may be repeated."
Beside = Annotated[list[Path] | None, typer.Option(help=_BESIDE, exists=True, file_okay=False)]


def page(context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None) -> None:
    """Write index.html, which holds all tables and opens from anywhere."""
    folder, found = RunFolder(folder_), [RunFolder(path) for path in beside or ()]
    others = [one if one.tables.is_dir() else PublishedFolder(one.root) for one in found]
    text = render(folder, sweeps_of(context, sweeps), project(context).root, others)
    replace_file(folder.page, text.encode("utf-8"))
