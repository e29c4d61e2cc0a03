"""List the variants of the chosen sweeps, one line each: identifier, sweeps, parameters."""

from __future__ import annotations

import argparse

from ladder.commands import arguments as common


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--sweep", action="append", help="list this sweep's variants only; may be repeated")
    common.add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Raises LadderError for a sweep that does not exist."""
    import json

    run = common.load(arguments, {"sweeps": arguments.sweep} if arguments.sweep else {})
    for name, variant in run.variants.items():
        users = [sweep.name for sweep in run.sweeps.values() if variant in sweep.variants]
        print(f"{name}\t{','.join(users)}\t{json.dumps(dict(variant.params))}")
    return 0
