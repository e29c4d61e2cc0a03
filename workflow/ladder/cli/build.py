"""The step that needs the compiler and no GPU."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ladder.build.cache import Cache
from ladder.build.nvrtc import refuse_options
from ladder.build.variants import CompileRequests
from ladder.catalogue.config import Config as Settings
from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.runs import Run
from ladder.catalogue.settings import choose_device, read_settings
from ladder.catalogue.sweeps import chosen_cells, load_sweeps
from ladder.cli.load import settings_of
from ladder.cli.options import (
    Arch,
    Config,
    Configfile,
    Folder,
    Jobs,
    Published,
    SweepName,
    project,
)
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.folders import Project, PublishedFolder, RunFolder
from ladder.model.plan import Plan
from ladder.model.plan_file import read_facts, to_json
from ladder.model.sweep import Sweep


def compiled(
    own: Project,
    sweep: Sweep,
    settings: Settings,
    arch: str,
    jobs: int,
    published: Path | None = None,
) -> Plan:
    """The plan of a sweep, with what is known of its kernels; those that are not in the cache are compiled.

    `published`: folder whose facts stand in for the compiler, where nothing is launched. Raises LadderError where the
    set-up is at fault, and not a kernel.
    """
    compiling = settings.compile
    refuse_options(arch, compiling.options)
    asked = CompileRequests(sweep, own.include, arch, compiling.options)
    known = read_facts(PublishedFolder(published).facts) if published else None
    found = Cache(own.root / compiling.cache, known).fill(
        asked.requests, jobs, compiling.timeout_s
    )
    for harness in asked.harness.values():
        if found[harness.key]["status"] != "ok":
            raise LadderError(f"{harness.source}: {found[harness.key]['reason']}")
    return asked.planned(
        replace(plan_sweep(sweep, settings, arch), edges=plan_edges(sweep, arch)), found
    )


def compiled_facts(run: Run, published: PublishedFolder) -> dict[str, dict[str, Any]]:
    """What the compiler says of the kernels of every sweep: of this checkout's cache, or as it is published.

    By the last of a request's keys, which is the same on a host without its compiler.
    """
    cache = Cache(
        run.project.root / run.config.compile.cache, read_facts(published.facts)
    )
    of = (run.project.include, run.arch, run.config.compile.options)
    requests = (
        one
        for sweep in run.every_sweep.values()
        for one in CompileRequests(sweep, *of).requests
    )
    return {
        one.keys[-1]: facts
        for one in requests
        if (facts := cache.facts(one)) is not None
    }


def write_plan(plan: Plan, folder: RunFolder) -> Path:
    """Write a plan to its place in a run's folder."""
    path = folder.plan(plan.sweep)
    replace_file(path, to_json(plan))
    return path


def prepare(
    context: typer.Context,
    folder: Folder,
    sweep: SweepName,
    arch: Arch = None,
    jobs: Jobs = 1,
    published: Published = None,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Plan a sweep, and compile its kernels that are not in the cache. What does not compile is recorded as such."""
    # Not the whole run: checking its other sweeps takes ten times as long.
    own = project(context)
    settings = read_settings(own, configfile or (), settings_of(config, arch=arch))
    chosen = load_sweeps(own.sweeps, load_kernels(own.kernels), [sweep])[sweep]
    cells, target = chosen_cells(chosen, settings.sweeps), choose_device(settings)[1]
    made = compiled(own, cells, settings, target, jobs, published)
    write_plan(made, RunFolder(folder))
    for name, facts in made.variants.items():
        if facts["status"] != "ok":
            logging.warning("%s: %s: %s", name, facts["status"], facts["reason"])
