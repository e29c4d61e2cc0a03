"""Steps that measure by themselves, in a folder that does not outlive them: they judge a kernel, or repeat a number."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder.catalogue.documents import parse_yaml, refuse_name
from ladder.catalogue.kernels import load_kernel, load_kernels
from ladder.catalogue.settings import choose_device, read_settings
from ladder.catalogue.sweeps import make_sweep
from ladder.cli.app import NOT_JUDGED, printable
from ladder.cli.build import compiled, write_plan
from ladder.cli.load import settings_of, sweeps_of
from ladder.cli.options import Config, project
from ladder.gpu.discovery import find_gpus, slug_of
from ladder.measure import job
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import read_store
from ladder.model.errors import LadderError, refuse
from ladder.model.files import read_text, write_json
from ladder.model.folders import Project, RunFolder
from ladder.model.kernel import Kernel
from ladder.model.plan import Plan
from ladder.model.problem import Problem
from ladder.model.sweep import Sweep
from ladder.results import reproduction, tables
from ladder.results.environment import read_environment
from ladder.results.judgement import (
    EXIT_CODES,
    cells_of,
    compiled_cells,
    decide,
    text,
)

LINE = Path("command line")
_SIZES: dict[str, Any] = {
    "gemm": 2048,
    "banks": 4096,
    "attention": {"sequence": 4096, "heads": 128, "d": 128},
}


def usual_size(problem: Problem) -> Any:
    """The size to judge at where none is asked for: of most problems a line or a matrix of 256 MiB in fp32."""
    return _SIZES.get(problem.name, "2**26" if len(problem.size_fields) == 1 else 8192)


def compiled_here(checkout: Project, sweep: Sweep, over: Mapping[str, Any]) -> Plan:
    """Compile a sweep for the architecture that is asked for, else for this host's GPU, else for the usual one."""
    settings = read_settings(checkout, (), {**over, "device": "auto"})
    _, arch = choose_device(settings)
    return compiled(checkout, sweep, settings, arch, os.cpu_count() or 1)


def measured(
    checkout: Project, sweep: Sweep, over: Mapping[str, Any]
) -> tuple[PlanRecords, str]:
    """Compile and measure a sweep in a temporary folder: its plan with the records, and the GPU's name.

    Raises LadderError without a GPU, and where a kernel that others are timed against does not compile.
    """
    gpus = find_gpus()
    if not gpus:
        raise LadderError("no GPU is visible, and this step measures on one")
    if not find_spec("nvmath"):
        wanted = "pip install 'kernel-ladder[gpu]', or judge with --compile-only"
        raise LadderError(f"what launches on a GPU is not installed: {wanted}")
    plan = compiled_here(checkout, sweep, over)
    for task in plan.tasks:
        if task.reference is not None:
            name = task.reference.variant
            facts = plan.variants[name]
            if facts["status"] != "ok":
                reason = f"{facts['status']}: {facts['reason']}"
                raise LadderError(f"the reference {name}: {reason}")
    with tempfile.TemporaryDirectory(prefix="ladder-") as place:
        folder = RunFolder(Path(place))
        job.measure(write_plan(plan, folder), plan, folder, checkout.root)
        return PlanRecords(plan, read_store(folder.records)), gpus[0].name


def compile_log(plan: Plan, variant: str, checkout: Project) -> str | None:
    """What the compiler said of a variant; None where it said nothing, or before logs were kept."""
    file = f"{plan.variants[variant].get('cubin')}.log"
    path = checkout.root / plan.job["cubins"] / file
    return (read_text(path) if path.is_file() else "") or None


Words = list[str] | None
_SIZE = "As in a sweep: 4096 or '{m: 64, n: 128, k: 4096}' (default: a usual one); may be repeated."
_REFERENCE = (
    "Library, '{kernel: NAME}' of the catalogue, '{shared_object: FILE.so, entry: NAME}' or "
    "'{python: FILE.py, entry: NAME}' (default: the libraries); may be repeated."
)
_AGAINST = (
    "Another kernel of one's own, such as an older version, in place of --reference."
)
_COMPILE_ONLY = "Compile alone, without a GPU: registers, spills, state and arguments."
_BESIDE = "Description; its source lies beside it."
Description = Annotated[Path, typer.Argument(metavar="KERNEL.yaml", help=_BESIDE)]


def described(path: Path, field: str) -> Kernel:
    """The kernel of a description. Raises LadderError for any mistake in it."""
    if path.suffix != ".yaml":
        accepted = "a kernel's description NAME.yaml, beside its source"
        raise refuse(LINE, field, str(path), accepted)
    refuse_name(path)
    return load_kernel(Path(os.path.abspath(path)))


def references_of(
    kernel: Kernel, checkout: Project, given: Words, against: Path | None
) -> tuple[list[Any], dict[str, Kernel]]:
    """References as a sweep has them, and the kernels that they may name.

    Raises LadderError without any, and where the names of two kernels are the same.
    """
    if against is not None:
        option, path = "--against", str(against)
        if given:
            raise refuse(LINE, option, path, "--against or --reference, not both")
        other = described(against, option)
        if other.name == kernel.name:
            accepted = "a kernel of another name: copy its two files"
            why = f"both are called {kernel.name}"
            raise refuse(LINE, option, path, accepted, why)
        return [{"kernel": other.name}], {kernel.name: kernel, other.name: other}
    words = given or kernel.problem.libraries
    if not words:
        why = f"the problem {kernel.problem.name} has no library"
        accepted = "'{kernel: NAME}' and others, see docs/references.md"
        missing = f"--reference is missing: {why}"
        raise LadderError(f"{LINE}: {missing}; accepted: {accepted}")
    references = [parse_yaml(word, f"{LINE}: --reference") for word in words]
    mappings = [entry for entry in references if isinstance(entry, Mapping)]
    names = [entry.get("kernel") for entry in mappings]
    catalog = load_kernels(checkout.kernels) if any(names) else {}
    same = catalog.get(kernel.name, kernel)
    if kernel.name in names and not same.path.samefile(kernel.path):
        why = f"the name {kernel.name!r}, which --reference has, is {same.path}'s"
        raise LadderError(f"{kernel.path}: {why}")
    return references, catalog | {kernel.name: kernel}


def parameters(words: Words) -> dict[str, Any]:
    """Parameters given as NAME=VALUE."""
    values = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        values[name] = parse_yaml(value, f"{LINE}: --param: {word!r}")
        if not equals or isinstance(values[name], list):
            accepted = "NAME=VALUE, the value a whole number or a word"
            raise refuse(LINE, "--param", word, accepted)
    return values


def judge(
    context: typer.Context,
    path: Description,
    size: Annotated[Words, typer.Option(metavar="SIZE", help=_SIZE)] = None,
    param: Annotated[
        Words, typer.Option(metavar="NAME=VALUE", help="Parameter; may be repeated.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Dtype (default: the description's first).")
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="Layout of a GEMM (default: its first).")
    ] = None,
    reference: Annotated[
        Words, typer.Option(metavar="REFERENCE", help=_REFERENCE)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="OTHER.yaml", help=_AGAINST)
    ] = None,
    regime: Annotated[
        Words,
        typer.Option(metavar="REGIME", help="Default: cold and warm; may be repeated."),
    ] = None,
    json_: Annotated[
        Path | None, typer.Option("--json", help="JSON to write; - is standard output.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(help="Architecture (default: the GPU's).")
    ] = None,
    compile_only: Annotated[
        bool, typer.Option("--compile-only", help=_COMPILE_ONLY)
    ] = False,
    config: Config = None,
) -> None:
    """Judge one kernel, which may lie anywhere: verify it, and time it against a reference.

    Exit codes, where speed is that on this GPU in the first regime: 0 faster at every size, or it compiles; 1 a tie at
    some; 2 slower at some; 3 wrong (incorrect) or refused (out_of_bounds, stateful); 4 broken (compile_error,
    launch_error, timeout) or incomplete (unsupported); 5 not judged (a mistake on the command line or in a file, no
    GPU, a host too slow to time launches, a reference that failed, or another error). docs/judge.md describes the JSON.
    """
    if json_ is not None and json_.exists() and not json_.is_file():
        accepted = "a file to write, or - for standard output"
        raise refuse(LINE, "--json", str(json_), accepted)
    checkout = Project(Path(os.path.abspath(project(context).root)))
    kernel = described(path, "KERNEL.yaml")
    references: list[Any] = [{"kernel": kernel.name}]
    catalog = {kernel.name: kernel}
    if not compile_only:
        references, catalog = references_of(kernel, checkout, reference, against)
    sizes = [parse_yaml(word, f"{LINE}: --size") for word in size or ()]
    chosen = {"kernel": kernel.name, "params": parameters(param)}
    fields = {
        "title": kernel.name,
        "question": "Is it right, and how fast?",
        "problem": kernel.problem.name,
        "dtypes": [dtype or next(iter(kernel.dtypes))],
        "layout": layout,
        "sizes": sizes or [usual_size(kernel.problem)],
        "variants": [chosen | {"unsupported": "record"}],
        "references": references,
        "regimes": regime or ["cold", "warm"],
    }
    made = make_sweep(LINE, fields, catalog, checkout.root)
    sweep = replace(made, name="judge")
    settings = settings_of(config, arch=arch)
    if compile_only:
        plan, device = compiled_here(checkout, sweep, settings), ""
        cells = compiled_cells(plan)
    else:
        view, device = measured(checkout, sweep, settings)
        plan = view.plan
        published = checkout.published(slug_of(device)).tables
        cells = cells_of(view, tables.read("components", published, required=False))
    variant = plan.tasks[0].variant
    for cell in cells:
        cell["compile_log"] = compile_log(plan, variant, checkout)
    verdict, _ = decide(cells)
    shown = printable(text(variant, device or plan.arch, cells))
    code = EXIT_CODES[verdict]
    document = NOT_JUDGED | {
        "verdict": verdict,
        "exit_code": code,
        "kernel": kernel.name,
        "dtype": sweep.dtypes[0],
        "arch": plan.arch,
        "device": device or None,
        "cells": cells,
    }
    if json_ == Path("-"):
        print(shown, file=sys.stderr)
        print(json.dumps(document, indent=1))
    else:
        print(shown)
        if json_ is not None:
            write_json(json_.resolve(), document)  # a link to it stays
    raise typer.Exit(code)


_CELL = "SWEEP/VARIANT@SIZE:REGIME, as the sweep's page or index.html has it."


def reproduce(
    context: typer.Context,
    cell: Annotated[str, typer.Argument(metavar="CELL", help=_CELL)],
    device: Annotated[
        str, typer.Option(help="Device whose publication is meant.")
    ] = "nvidia-h200",
    config: Config = None,
) -> None:
    """Print what is published of a cell, measure it again here, and say whether it lies where it was predicted.

    Exit codes: 0 it does, or nothing was predicted; 1 it does not; 2 it cannot be measured here, or a mistake.
    """
    published = project(context).published(device)
    row = reproduction.published_row(tables.read("timings", published.tables), cell)
    print(reproduction.published_text(row, read_environment(published)))
    sweep = sweeps_of(context, [row["sweep"]])[row["sweep"]]
    alone = reproduction.alone(sweep, row)
    view, gpu = measured(project(context), alone, settings_of(config))
    now = reproduction.again(view, row)
    print(reproduction.measured_text(row, now, gpu))
    raise typer.Exit(int(reproduction.inside(row, now) is False))
