"""Settings, runs and sweeps that the options of a step name. Measuring does without, and starts faster for it."""

from typing import Any

import typer

from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.runs import Run, load
from ladder.catalogue.settings import parse_over, set_up
from ladder.catalogue.sweeps import load_sweeps
from ladder.cli.options import Config, Configfile, project
from ladder.model.sweep import Sweep


def settings_of(given: Config, **options: str | None) -> dict[str, Any]:
    """Settings given as KEY=VALUE, with those on top for which a step has options, as far as they are given."""
    settings = parse_over(given or ())
    for name, value in options.items():
        if value is not None:
            settings[name] = value
    return settings


def run_of(
    context: typer.Context, files: Configfile, given: Config, **options: str | None
) -> Run:
    """The run that files and settings describe, with `options` on top. Raises LadderError for any mistake."""
    settings = settings_of(given, **options)
    return load(set_up(project(context).root, files or (), settings))


def sweeps_of(context: typer.Context, names: list[str] | None) -> dict[str, Sweep]:
    """The named sweeps of the project, or all."""
    checkout = project(context)
    return load_sweeps(checkout.sweeps, load_kernels(checkout.kernels), names)
