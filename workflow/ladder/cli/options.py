"""Options that several steps share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.runs import Run, load_run, parse_over
from ladder.catalogue.sweeps import load_sweeps
from ladder.model.folders import Project
from ladder.model.sweep import Sweep

ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--configfile", help="File merged over config/config.yaml; may be repeated."),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A setting, as for snakemake; may be repeated."),
]
RunFolderOption = Annotated[Path, typer.Option("--run-folder", help="results/RUN/DEVICE")]
SweepName = Annotated[str, typer.Option("--sweep", help="Name of the sweep.")]
SweepNames = Annotated[list[str], typer.Option("--sweep", help="Name of a sweep; repeated, in order.")]
PlanFile = Annotated[Path, typer.Option("--plan", help="Plan of the sweep.")]
Published = Annotated[
    Path | None,
    typer.Option("--published", help="Without a GPU: published folder whose measurements stand in."),
]


def project(context: typer.Context) -> Project:
    """The project that --root names."""
    root: Path = context.obj
    return Project(root)


def run_of(
    context: typer.Context,
    files: list[Path] | None,
    given: list[str] | None,
    over: Mapping[str, Any] | None = None,
) -> Run:
    """The run that files and settings describe, with `over` on top. Raises LadderError for any mistake."""
    return load_run(project(context).root, files or (), {**parse_over(given or ()), **(over or {})})


def sweeps_of(context: typer.Context, names: list[str] | None) -> dict[str, Sweep]:
    """The named sweeps of the project, or all."""
    own = project(context)
    return load_sweeps(own.sweeps, load_catalog(own.kernels), names)
