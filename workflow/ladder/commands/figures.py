"""Draw the figures of a sweep."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--sweep", required=True, help="name of the sweep")
    parser.add_argument(
        "--run-folder", type=Path, required=True, help="results/RUN/DEVICE, with collected tables"
    )
    parser.add_argument(
        "--environment", type=Path, help="device and its peaks (default: the run's environment.json)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write figures/SWEEP-INDEX-KIND.png for every figure the sweep asks for."""
    from ladder import tables
    from ladder.catalog import load_catalog
    from ladder.collect import read_json
    from ladder.figures import figure_names
    from ladder.figures.data import FigureData
    from ladder.figures.registry import render
    from ladder.layout import Project, RunFolder
    from ladder.sweeps import load_sweeps

    project, folder = Project(arguments.root), RunFolder(arguments.run_folder)
    name = arguments.sweep
    sweep = load_sweeps(project.sweeps, load_catalog(project.kernels), [name])[name]
    frames = {table: tables.read(table, folder.sweep(name)) for table in ("timings", "resources", "metrics")}
    environment = read_json(arguments.environment or folder.environment) or {}
    for figure, title in zip(sweep.figures, figure_names(sweep), strict=True):
        data = FigureData(
            sweep=sweep,
            figure=figure,
            timings=frames["timings"],
            resources=frames["resources"],
            metrics=frames["metrics"],
            environment=environment,
        )
        tables.replace_file(folder.figure(name, title), render(data))
    return 0
