"""Steps that need no GPU: plans and cubins."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from ladder.build.cache import Cache
from ladder.build.nvrtc import refuse_options
from ladder.build.variants import Wanted
from ladder.catalogue.config import Config as Settings
from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.runs import choose_device, parse_over, read_settings
from ladder.catalogue.sweeps import load_sweeps
from ladder.cli.options import Config, Configfile, SweepName, project
from ladder.model.errors import LadderError
from ladder.model.files import replace_file, write_json
from ladder.model.folders import Project
from ladder.model.plan import to_json
from ladder.model.sweep import Sweep

Arch = Annotated[str | None, typer.Option(help="Architecture (default: the run's).")]
Out = Annotated[Path, typer.Argument(help="File to write.")]


def _chosen(
    context: typer.Context, name: str, arch: str | None, files: list[Path] | None, given: list[str] | None
) -> tuple[Project, Sweep, Settings, str]:
    """Project, sweep, settings and architecture: not the whole run, since checking its other sweeps takes longer."""
    own = project(context)
    settings = read_settings(own, files or (), parse_over(given or ()) | ({"arch": arch} if arch else {}))
    sweep = load_sweeps(own.sweeps, load_catalog(own.kernels), [name])[name]
    return own, sweep, settings, choose_device(settings)[1]


def plan(
    context: typer.Context,
    sweep: SweepName,
    out: Out,
    arch: Arch = None,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Work out the measuring plan of a sweep: every cell with its launch geometry, as JSON."""
    _, chosen, settings, arch = _chosen(context, sweep, arch, configfile, config)
    replace_file(out, to_json(plan_sweep(chosen, settings, arch)))


def compile_(
    context: typer.Context,
    sweep: SweepName,
    out: Out,
    arch: Arch = None,
    jobs: Annotated[int, typer.Option(help="Compilers at once.")] = 1,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Compile what a sweep launches, where the cache does not have it; what does not compile is recorded as such."""
    own, chosen, settings, arch = _chosen(context, sweep, arch, configfile, config)
    asked = Wanted(chosen, own.include, arch, settings.compile.options)
    cache = Cache(own.root / settings.compile.cache)
    refuse_options(arch, settings.compile.options)
    found = cache.fill(asked.requests, jobs, settings.compile.timeout_s)
    if (harness := found[asked.harness.key])["status"] != "ok":
        raise LadderError(f"{asked.harness.source}: {harness['reason']}")
    made = asked.document(found)
    write_json(out, made)
    for name, facts in made["variants"].items():
        if facts["status"] != "ok":
            logging.warning("%s: %s: %s", name, facts["status"], facts["reason"])
