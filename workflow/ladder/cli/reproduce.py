"""The step that measures a published number again."""

from typing import Annotated

import typer

from ladder.cli.alone import measured_alone
from ladder.cli.asked import settings_of, sweeps_of
from ladder.cli.options import Config, project
from ladder.results import reproduction, tables
from ladder.results.environment import read_environment

Cell = Annotated[
    str,
    typer.Argument(
        metavar="CELL", help="SWEEP/VARIANT@SIZE:REGIME, as the sweep's page or index.html has it."
    ),
]
Device = Annotated[str, typer.Option(help="Device whose publication is meant.")]


def reproduce(
    context: typer.Context, cell: Cell, device: Device = "nvidia-h200", config: Config = None
) -> None:
    """Print what is published of a cell, measure it again here, and say whether it lies where it was predicted.

    Exit codes: 0 it does, or nothing was predicted; 1 it does not; 2 it cannot be measured here, or a mistake.
    """
    own = project(context)
    published = own.published(device)
    row = reproduction.published_row(tables.read("timings", published.tables), cell)
    print(reproduction.published_text(row, read_environment(published)))
    sweep = sweeps_of(context, [row["sweep"]])[row["sweep"]]
    view, gpu = measured_alone(own, reproduction.alone(sweep, row), settings_of(config))
    now = reproduction.again(view, row)
    print(reproduction.measured_text(row, now, gpu))
    raise typer.Exit(int(reproduction.inside(row, now) is False))
