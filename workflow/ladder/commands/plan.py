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
    from ladder.plan import write_plan

    over = {"arch": arguments.arch} if arguments.arch else {}
    loaded = common.load(arguments, {"sweeps": [arguments.sweep], **over})
    write_plan(loaded.plans[arguments.sweep], arguments.out)
    return 0
