"""Steps that need no GPU: plans, cubins, and the harness."""

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from ladder.build.nvrtc import compile_harness, compile_variant
from ladder.catalogue.kernels import load_catalog, load_kernel
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.runs import choose_device, parse_over, read_settings
from ladder.catalogue.sweeps import load_sweeps
from ladder.cli.options import Config, Configfile, SweepName, project
from ladder.gpu.harness import ENTRIES, join_harness
from ladder.model.errors import refuse
from ladder.model.files import replace_file, write_json
from ladder.model.plan import to_json
from ladder.problems.registry import INCLUDE, PROBLEMS, harness_source

Arch = Annotated[str, typer.Option(help="Architecture, such as sm_90a.")]
Out = Annotated[Path, typer.Argument(help="File to write.")]
ProblemName = Annotated[str, typer.Argument(metavar="PROBLEM", help="Problem whose checks it holds.")]


def plan(
    context: typer.Context,
    sweep: SweepName,
    out: Out,
    arch: Annotated[str | None, typer.Option(help="Architecture (default: the run's).")] = None,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Work out the measuring plan of a sweep: every cell with its launch geometry, as JSON."""
    # Not the whole run: checking its other sweeps takes ten times as long.
    own = project(context)
    over = parse_over(config or ()) | ({"arch": arch} if arch else {})
    settings = read_settings(own, configfile or (), over)
    chosen = load_sweeps(own.sweeps, load_catalog(own.kernels), [sweep])[sweep]
    replace_file(out, to_json(plan_sweep(chosen, settings, choose_device(settings)[1])))


def compile_(
    context: typer.Context,
    kernel: Annotated[Path, typer.Option(help="The kernel's YAML file.")],
    dtype: Annotated[str, typer.Option(help="Element type.")],
    arch: Arch,
    cubin: Annotated[Path, typer.Option(help="Cubin to write; empty where compiling failed.")],
    facts: Annotated[Path, typer.Option(help="JSON of facts to write.")],
    params: Annotated[str, typer.Option(help="Parameters as JSON; the rest are defaults.")] = "{}",
    layout: Annotated[str | None, typer.Option(help="Layout of the operands.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Further NVRTC option; may be repeated.")] = None,
) -> None:
    """Compile one variant to a cubin and its facts; one that does not compile is recorded in the facts."""
    variant = load_kernel(kernel).variant(json.loads(params), dtype, layout)
    code, found = compile_variant(variant, project(context).include, arch, tuple(option or ()))
    replace_file(cubin, code)
    write_json(facts, found)
    if found["status"] != "ok":
        logging.warning("%s: %s: %s", variant.id, found["status"], found["reason"])


def harness(problem: ProblemName, arch: Arch, out: Out) -> None:
    """Compile the measuring harness's own kernels for a problem."""
    if problem not in PROBLEMS:
        raise refuse("command line", "PROBLEM", problem, PROBLEMS)
    entries = [*ENTRIES, *PROBLEMS[problem].harness]
    replace_file(out, join_harness(*compile_harness(harness_source(problem), entries, INCLUDE, arch)))
