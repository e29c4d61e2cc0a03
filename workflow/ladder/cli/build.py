"""The step that needs the compiler and no GPU."""

import logging
from dataclasses import replace
from pathlib import Path

import typer

from ladder.build.cache import Cache
from ladder.build.nvrtc import refuse_options
from ladder.build.variants import CompileRequests
from ladder.catalogue.config import Config as Settings
from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.settings import choose_device, read_settings
from ladder.catalogue.sweeps import chosen_cells, load_sweeps
from ladder.cli.load import settings_of
from ladder.cli.options import Arch, Config, Configfile, Folder, Jobs, SweepName, project
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.folders import Project, RunFolder
from ladder.model.plan import Plan
from ladder.model.plan_file import to_json
from ladder.model.sweep import Sweep


def compiled(own: Project, sweep: Sweep, settings: Settings, arch: str, jobs: int) -> Plan:
    """The plan of a sweep, with what is known of its kernels; those that are not in the cache are compiled.

    Raises LadderError where the set-up is at fault, and not a kernel.
    """
    compiling = settings.compile
    refuse_options(arch, compiling.options)
    asked = CompileRequests(sweep, own.include, arch, compiling.options)
    found = Cache(own.root / compiling.cache).fill(asked.requests, jobs, compiling.timeout_s)
    for harness in asked.harness.values():
        if found[harness.key]["status"] != "ok":
            raise LadderError(f"{harness.source}: {found[harness.key]['reason']}")
    return asked.planned(replace(plan_sweep(sweep, settings, arch), edges=plan_edges(sweep, arch)), found)


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
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Plan a sweep, and compile its kernels that are not in the cache. What does not compile is recorded as such."""
    # Not the whole run: checking its other sweeps takes ten times as long.
    own = project(context)
    settings = read_settings(own, configfile or (), settings_of(config, arch=arch))
    chosen = load_sweeps(own.sweeps, load_catalog(own.kernels), [sweep])[sweep]
    made = compiled(own, chosen_cells(chosen, settings.sweeps), settings, choose_device(settings)[1], jobs)
    write_plan(made, RunFolder(folder))
    for name, facts in made.variants.items():
        if facts["status"] != "ok":
            logging.warning("%s: %s: %s", name, facts["status"], facts["reason"])
