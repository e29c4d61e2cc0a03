"""Work out the measuring plan of a sweep: every cell with its launch geometry, as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from ladder.commands import arguments as common


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--sweep", required=True, help="name of the sweep")
    parser.add_argument("--arch", help="architecture (default: the run's)")
    parser.add_argument("--out", type=Path, required=True, help="plan to write")
    common.add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Raises LadderError for a sweep the run does not have."""
    from ladder.catalog import load_catalog
    from ladder.layout import Project
    from ladder.plan import plan_sweep, write_plan
    from ladder.runs import choose_device, parse_over, read_settings
    from ladder.sweeps import load_sweeps

    # Not the whole run: checking its other sweeps and its claims takes ten times as long.
    project, name = Project(arguments.root), arguments.sweep
    over = {"arch": arguments.arch} if arguments.arch else {}
    config = read_settings(project, arguments.configfile, parse_over(arguments.settings) | over)
    sweep = load_sweeps(project.sweeps, load_catalog(project.kernels), [name])[name]
    write_plan(plan_sweep(sweep, config, choose_device(config)[1]), arguments.out)
    return 0
