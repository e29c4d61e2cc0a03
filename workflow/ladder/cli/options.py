"""Options that several steps share."""

from pathlib import Path
from typing import Annotated

import typer

from ladder.model.errors import refuse
from ladder.model.folders import Project, PublishedFolder, RunFolder

Configfile = Annotated[
    list[Path] | None,
    typer.Option(help="File merged over config.yaml; may be repeated."),
]
Config = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="A setting, as for snakemake; may be repeated."
    ),
]
Arch = Annotated[str | None, typer.Option(help="Architecture (default: the run's).")]
Jobs = Annotated[int, typer.Option(min=1, help="Compilers at once.")]
PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="results/RUN/DEVICE/plans/SWEEP.json")
]


def _folder(text: str) -> Path:
    """A folder that is there or will be."""
    path = Path(text)
    if not text or (path.exists() and not path.is_dir()):
        accepted = "a folder, results/RUN/DEVICE or a new one"
        raise refuse("command line", "folder", text, accepted)
    return path


Folder = Annotated[
    Path, typer.Argument(parser=_folder, metavar="FOLDER", help="results/RUN/DEVICE")
]
SweepNames = Annotated[
    list[str], typer.Argument(metavar="SWEEP", help="Names of sweeps, in order.")
]
SweepName = Annotated[str, typer.Argument(metavar="SWEEP", help="Name of a sweep.")]
_STAND_IN = "Without a GPU: published folder whose measurements stand in."


def _whole(published: Path | None) -> Path | None:
    """Raises LadderError for half a publication."""
    if published is not None:
        PublishedFolder(published).refuse_half()
    return published


Published = Annotated[
    Path | None,
    typer.Option(help=_STAND_IN, exists=True, file_okay=False, callback=_whole),
]
_INTO = "Folder for tables and figures (default: tables/ and figures/ of the run)."

Into = Annotated[
    Path | None,
    typer.Option(parser=_folder, metavar="FOLDER", help=_INTO),
]
_BESIDE = "Folder of another run, or a published one, to compare with; may be repeated."
Beside = Annotated[
    list[Path] | None, typer.Option(help=_BESIDE, exists=True, file_okay=False)
]


def with_tables(path: Path, field: str = "--beside") -> RunFolder:
    """A folder to compare, of a run or published. Raises LadderError naming `field` where it has no tables."""
    for folder in (RunFolder(path), PublishedFolder(path)):
        if (folder.tables / "timings.csv").is_file():
            return folder
    accepted = "results/RUN/DEVICE or results/published/DEVICE"
    raise refuse("command line", field, str(path), accepted)


def folder_of(plan: Path) -> RunFolder:
    return RunFolder(plan.parent.parent)


def project(context: typer.Context) -> Project:
    """The project that --root names."""
    return Project(Path(context.obj))
