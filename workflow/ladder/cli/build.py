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
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.runs import Run
from ladder.catalogue.settings import choose_device, read_settings
from ladder.catalogue.sweeps import chosen_cells
from ladder.cli.load import settings_of, sweeps_of
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
    checkout: Project,
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
    requests = CompileRequests(sweep, checkout.include, arch, compiling.options)
    facts = read_facts(PublishedFolder(published).facts) if published else None
    cache = Cache(checkout.root / compiling.cache, facts)
    answers = cache.fill(requests.requests, jobs, compiling.timeout_s)
    for harness in requests.harness.values():
        answer = answers[harness.key]
        if answer["status"] != "ok":
            raise LadderError(f"{harness.source}: {answer['reason']}")
    plan = plan_sweep(sweep, settings, arch)
    return requests.planned(replace(plan, edges=plan_edges(sweep, arch)), answers)


def compiled_facts(run: Run, published: PublishedFolder) -> dict[str, dict[str, Any]]:
    """What the compiler says of the kernels of every sweep: of this checkout's cache, or as it is published.

    By the last of a request's keys, which is the same on a host without its compiler.
    """
    compiling = run.config.compile
    cache = Cache(run.project.root / compiling.cache, read_facts(published.facts))
    facts = dict[str, dict[str, Any]]()
    target = (run.project.include, run.arch, compiling.options)
    for sweep in run.every_sweep.values():
        for request in CompileRequests(sweep, *target).requests:
            if (answer := cache.facts(request)) is not None:
                facts[request.keys[-1]] = answer
    return facts


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
    checkout = project(context)
    settings = read_settings(checkout, configfile or (), settings_of(config, arch=arch))
    whole = sweeps_of(context, [sweep])[sweep]
    _, target = choose_device(settings)
    cells = chosen_cells(whole, settings.sweeps)
    plan = compiled(checkout, cells, settings, target, jobs, published)
    write_plan(plan, RunFolder(folder))
    for name, facts in plan.variants.items():
        if facts["status"] != "ok":
            logging.warning("%s: %s: %s", name, facts["status"], facts["reason"])
