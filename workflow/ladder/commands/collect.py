"""Turn raw records of a sweep into tables."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--sweep", required=True, help="name of the sweep")
    parser.add_argument("--run-folder", type=Path, required=True, help="results/RUN/DEVICE")
    parser.add_argument(
        "--environment", type=Path, help="device and its peaks (default: the run's environment.json)"
    )
    parser.add_argument(
        "--published",
        type=Path,
        help="without a GPU: take timings and metrics from the tables of this published run",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write sweeps/NAME/{timings,metrics,resources,notes,jobs}.csv and .parquet."""
    import logging

    from ladder.catalog import load_catalog
    from ladder.collect import collect_sweep, read_json, write_tables
    from ladder.layout import Project, RunFolder
    from ladder.plan import read_plan
    from ladder.published import collect_published
    from ladder.sweeps import load_sweeps

    project, folder = Project(arguments.root), RunFolder(arguments.run_folder)
    name = arguments.sweep
    sweep = load_sweeps(project.sweeps, load_catalog(project.kernels), [name])[name]
    if arguments.published is not None:
        frames = collect_published(sweep, folder, arguments.published)
    else:
        plan = read_plan(folder.plan(name))
        frames = collect_sweep(sweep, plan, folder, read_json(arguments.environment or folder.environment))
    write_tables(frames, folder.sweep(name))
    counts = frames["timings"]["status"].value_counts()
    summary = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no timings"
    logging.info("%s: %d rows: %s", name, len(frames["timings"]), summary)
    return 0
