"""The step that needs the compiler and no GPU."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from ladder.build.cache import Cache
from ladder.build.nvrtc import refuse_options
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.runs import Run
from ladder.catalogue.settings import Setup, set_up
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
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan import Plan
from ladder.model.plan_file import read_facts, to_json
from ladder.model.sweep import Sweep


def compiled(
    setup: Setup, sweep: Sweep, jobs: int, published: Path | None = None
) -> Plan:
    """The plan of a sweep, with what is known of its kernels; those that are not in the cache are compiled.

    `published`: folder whose facts stand in for the compiler, where nothing is launched. Raises LadderError where the
    set-up is at fault, and not a kernel.
    """
    compiling = setup.config.compile
    refuse_options(setup.arch, compiling.options)
    requests = setup.requests(sweep)
    facts = read_facts(PublishedFolder(published).facts) if published else None
    cache = Cache(setup.project.root / compiling.cache, facts)
    answers = cache.fill(requests.requests, jobs, compiling.timeout_s)
    for harness in requests.harness.values():
        answer = answers[harness.key]
        if answer["status"] != "ok":
            raise LadderError(f"{harness.source}: {answer['reason']}")
    plan = plan_sweep(sweep, setup.config, setup.arch)
    edges = plan_edges(sweep, setup.arch)
    return requests.planned(replace(plan, edges=edges), answers)


def compiled_facts(run: Run, published: PublishedFolder) -> dict[str, dict[str, Any]]:
    """What the compiler says of the kernels of every sweep: of this checkout's cache, or as it is published.

    By the last of a request's keys, which is the same on a host without its compiler.
    """
    kept = run.project.root / run.config.compile.cache
    cache = Cache(kept, read_facts(published.facts))
    facts = dict[str, dict[str, Any]]()
    for sweep in run.every_sweep.values():
        for request in run.requests(sweep).requests:
            if (answer := cache.facts(request)) is not None:
                facts[request.keys[-1]] = answer
    return facts


def write_plan(plan: Plan, folder: RunFolder) -> Path:
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
    over = settings_of(config, arch=arch)
    setup = set_up(project(context).root, configfile or (), over)
    whole = sweeps_of(context, [sweep])[sweep]
    cells = chosen_cells(whole, setup.config.sweeps)
    plan = compiled(setup, cells, jobs, published)
    write_plan(plan, RunFolder(folder))
    for name, facts in plan.variants.items():
        if facts["status"] != "ok":
            logging.warning("%s: %s: %s", name, facts["status"], facts["reason"])
