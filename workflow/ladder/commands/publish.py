"""Copy a run into results/published."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--run", required=True, help="name of the run (folder under results/)")
    parser.add_argument("--device", required=True, help="device folder of the run, such as nvidia-h200")
    parser.add_argument("--force", action="store_true", help="publish in spite of objections")


def run(arguments: argparse.Namespace) -> int:
    """Raises LadderError with every objection, unless forced."""
    import logging

    from ladder.layout import Project
    from ladder.publish import publish

    target = publish(Project(arguments.root), arguments.run, arguments.device, force=arguments.force)
    logging.info("published in %s", target)
    return 0
