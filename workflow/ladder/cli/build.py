"""The step that needs the compiler and no GPU."""

import logging
from dataclasses import replace
from typing import Annotated

import typer

from ladder.build.cache import Cache
from ladder.build.nvrtc import refuse_options
from ladder.build.variants import Wanted
from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.settings import choose_device, parse_over, read_settings
from ladder.catalogue.sweeps import load_sweeps
from ladder.cli.options import Config, Configfile, Folder, SweepName, project
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan import to_json


def prepare(
    context: typer.Context,
    folder: Folder,
    sweep: SweepName,
    arch: Annotated[str | None, typer.Option(help="Architecture (default: the run's).")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Compilers at once.")] = 1,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Plan a sweep, and compile its kernels that are not in the cache. What does not compile is recorded as such."""
    # Not the whole run: checking its other sweeps takes ten times as long.
    own, run = project(context), RunFolder(folder)
    over = parse_over(config or ()) | ({"arch": arch} if arch else {})
    settings = read_settings(own, configfile or (), over)
    chosen = load_sweeps(own.sweeps, load_catalog(own.kernels), [sweep])[sweep]
    target, compiling = choose_device(settings)[1], settings.compile
    refuse_options(target, compiling.options)
    asked = Wanted(chosen, own.include, target, compiling.options)
    found = Cache(own.root / compiling.cache).fill(asked.requests, jobs, compiling.timeout_s)
    for harness in asked.harness.values():
        if found[harness.key]["status"] != "ok":
            raise LadderError(f"{harness.source}: {found[harness.key]['reason']}")
    edges = plan_edges(chosen, target)
    made = replace(plan_sweep(chosen, settings, target), edges=edges, **asked.facts(found))
    replace_file(run.plan(sweep), to_json(made))
    for name, facts in made.variants.items():
        if facts["status"] != "ok":
            logging.warning("%s: %s: %s", name, facts["status"], facts["reason"])
