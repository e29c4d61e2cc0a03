"""Write report.md."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument(
        "--run-folder", type=Path, required=True, help="results/RUN/DEVICE, with merged tables"
    )
    parser.add_argument(
        "--sweep", action="append", required=True, help="a sweep to report; repeated, in order"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write report.md into the run folder."""
    from ladder.catalog import load_catalog
    from ladder.layout import Project, RunFolder
    from ladder.report import render
    from ladder.sweeps import load_sweeps
    from ladder.tables import replace_file

    project, folder = Project(arguments.root), RunFolder(arguments.run_folder)
    sweeps = load_sweeps(project.sweeps, load_catalog(project.kernels), arguments.sweep)
    replace_file(folder.report, render(folder, sweeps).encode("utf-8"))
    return 0
