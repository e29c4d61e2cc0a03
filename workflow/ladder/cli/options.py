"""Options that several steps share."""

from pathlib import Path
from typing import Annotated

import typer

from ladder.model.folders import Project, PublishedFolder, RunFolder

Configfile = Annotated[list[Path] | None, typer.Option(help="File merged over config.yaml; may be repeated.")]
Config = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting, as for snakemake; may be repeated.")
]
Arch = Annotated[str | None, typer.Option(help="Architecture (default: the run's).")]
Jobs = Annotated[int, typer.Option(min=1, help="Compilers at once.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="results/RUN/DEVICE/plans/SWEEP.json")]
PlanFiles = Annotated[
    list[Path], typer.Argument(metavar="PLAN", help="As of one sweep, of several of a run.")
]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="results/RUN/DEVICE")]
SweepNames = Annotated[list[str], typer.Argument(metavar="SWEEP", help="Names of sweeps, in order.")]
SweepName = Annotated[str, typer.Argument(metavar="SWEEP", help="Name of a sweep.")]
_STAND_IN = "Without a GPU: published folder whose measurements stand in."
Published = Annotated[Path | None, typer.Option(help=_STAND_IN, exists=True, file_okay=False)]
Into = Annotated[
    Path | None,
    typer.Option(help="Folder for tables and figures (default: tables/ and figures/ of the run)."),
]
_BESIDE = "Folder of another run, or a published one, to compare with; may be repeated."
Beside = Annotated[list[Path] | None, typer.Option(help=_BESIDE, exists=True, file_okay=False)]


def folders(beside: list[Path] | None) -> list[RunFolder]:
    """Folders to compare with, each of a run or published."""
    found = [RunFolder(path) for path in beside or ()]
    return [one if one.tables.is_dir() else PublishedFolder(one.root) for one in found]


def folder_of(plan: Path) -> RunFolder:
    return RunFolder(plan.parent.parent)


def project(context: typer.Context) -> Project:
    """The project that --root names."""
    return Project(Path(context.obj))
