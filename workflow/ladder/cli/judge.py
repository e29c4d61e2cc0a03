"""Steps that measure by themselves, in a folder that does not outlive them: they judge a kernel, or repeat a number."""

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder.catalogue.documents import parse_yaml, refuse_name
from ladder.catalogue.kernels import (
    load_kernel,
    load_kernels,
    make_kernel,
    problem_name,
)
from ladder.catalogue.settings import Setup, set_up
from ladder.catalogue.sweeps import make_sweep
from ladder.cli.app import (
    NOT_JUDGED,
    STDOUT,
    printable,
    takes_verdicts,
    write_verdict,
)
from ladder.cli.build import compiled, write_plan
from ladder.cli.load import settings_of, sweeps_of
from ladder.cli.options import Config, project
from ladder.gpu.discovery import find_gpus, of_one_model, slug_of
from ladder.measure import job
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records, appending, read_store
from ladder.model.errors import LadderError, refuse
from ladder.model.files import read_text
from ladder.model.folders import Project, RunFolder
from ladder.model.kernel import Kernel
from ladder.model.plan import Plan
from ladder.model.problem import WEIGHTS, Problem
from ladder.model.sweep import Sweep
from ladder.problems.registry import PROBLEMS
from ladder.results import reproduction, tables
from ladder.results.environment import read_environment
from ladder.results.judgement import (
    EXIT_CODES,
    UNSEEN,
    JudgedCell,
    cells_of,
    compiled_cells,
    decide,
)
from ladder.results.templates import TEMPLATES

LINE = Path("command line")
CHOICES = ".cache/references"
"""Store of the references that were chosen, of a checkout or of the folder that `judge` runs in."""
_SIZES: dict[str, Any] = {
    "gemm": 2048,
    "banks": 4096,
    "attention": {"sequence": 4096, "heads": 128, "d": 128},
}


def usual_size(problem: Problem) -> Any:
    """The size to judge at where none is asked for: of most problems a line or a matrix of 256 MiB in fp32."""
    if problem.definition:
        return problem.definition.size
    return _SIZES.get(problem.name, "2**26" if len(problem.size_fields) == 1 else 8192)


def measured(
    setup: Setup,
    sweep: Sweep,
    on_records: Callable[[PlanRecords, str], None] = lambda view, device: None,
) -> tuple[PlanRecords, str]:
    """Compile and measure a sweep in a temporary folder: its plan with the records, and the GPU's name.

    Its kernels are shared out among the GPUs of one model. References that were chosen on these GPUs before, by what
    counts today, are not chosen again. `on_records` gets a share of the plan, whenever there are more records, and the
    GPU's name. Raises LadderError without a GPU, and where a kernel that others are timed against does not compile.
    """
    gpus = find_gpus()
    if not gpus:
        raise LadderError("no GPU is visible, and this step measures on one")
    if not find_spec("nvmath"):
        wanted = "the extra [gpu] (docs/judge.md), or judge with --compile-only"
        raise LadderError(f"what launches on a GPU is not installed: {wanted}")
    plan = compiled(setup, sweep, os.cpu_count() or 1)
    for task in plan.tasks:
        if task.reference is not None:
            name = task.reference.variant
            facts = plan.variants[name]
            if facts["status"] != "ok":
                reason = f"{facts['status']}: {facts['reason']}"
                raise LadderError(f"the reference {name}: {reason}")
    device = gpus[0].name
    names = list(dict.fromkeys(task.cell.kernel for task in plan.tasks))
    jobs = min(len(names), len(of_one_model(gpus, "")))
    interrupted = threading.Event()
    uuids = {gpu.uuid for gpu in gpus}
    root = setup.project.root
    choices = root / CHOICES
    earlier = read_store(choices).of_sessions(
        lambda session: session.gpu.get("uuid") in uuids
    )

    def measure(number: int) -> Records:
        folder = RunFolder(Path(place) / str(number))
        share = only_of(plan, names[number::jobs])
        copy_records(earlier, folder.records)

        def look(view: PlanRecords) -> None:
            if interrupted.is_set():
                raise LadderError("interrupted")
            on_records(view, device)

        job.measure(write_plan(share, folder), share, folder, root, look)
        return read_store(folder.records)

    with (
        tempfile.TemporaryDirectory(prefix="ladder-") as place,
        ThreadPoolExecutor(jobs) as pool,
    ):
        records = Records()
        # One job stays in this thread, which an interruption reaches; others end with their next record.
        spread = map if jobs == 1 else pool.map
        try:
            for of_share in spread(measure, range(jobs)):
                records.add([*of_share.sessions.values(), *of_share])
        except KeyboardInterrupt:
            interrupted.set()
            raise
        new = records.of_sessions(lambda session: session.id not in earlier.sessions)
        copy_records(lasting_choices(new, plan), choices)
        return PlanRecords(plan, records), device


def lasting_choices(records: Records, plan: Plan) -> Records:
    """The choices of references that another call may go by: of libraries whose versions their conditions name.

    What failed, or shared the GPU, is tried again.
    """
    choices = Records().add(records.sessions.values())
    for record in records:
        if record.cell.kernel or record.status != "ok":
            continue
        own = plan.external.keys() & {*record.cell.reference.libraries}
        of_system = "system" in record.conditions.host.values()
        if not (own or of_system or record.result["device"]["busy"]):
            choices.add([record])
    return choices


def copy_records(records: Records, folder: Path) -> None:
    if records.by_cell:
        with appending(folder, "choices") as append:
            for entry in (*records.sessions.values(), *records):
                append(entry)


def only_of(plan: Plan, kernels: Collection[str]) -> Plan:
    tasks = tuple(task for task in plan.tasks if task.cell.kernel in kernels)
    return replace(plan, tasks=tasks)


Words = list[str] | None
_SIZE = "As in a sweep: 4096 or '{m: 64, n: 128, k: 4096}' (default: a usual one); may be repeated."
_REFERENCE = (
    "Library, '{kernel: NAME}' of the catalogue, '{shared_object: FILE.so, entry: NAME}' or "
    "'{python: FILE.py, entry: NAME}' (default: libraries; attention and banks have none); may be repeated."
)
_AGAINST = (
    "Another kernel of one's own, such as an older version, in place of --reference."
)
_COMPILE_ONLY = "Compile alone, without a GPU: registers, spills, state and arguments."
_BESIDE = (
    "Description, its source beside it; or a launcher FILE.so or FILE.py, with --entry and --problem "
    "(docs/launchers.md)."
)
Descriptions = Annotated[list[Path], typer.Argument(metavar="KERNEL...", help=_BESIDE)]


def described(path: Path, field: str) -> Kernel:
    """The kernel of a description. Raises LadderError for any mistake in it."""
    if path.suffix != ".yaml":
        accepted = (
            "a kernel's description NAME.yaml, beside its source or cubin; "
            "or a launcher FILE.so or FILE.py with --entry"
        )
        raise refuse(LINE, field, str(path), accepted)
    refuse_name(path)
    return load_kernel(Path(os.path.abspath(path)))


_OPTIONS = {
    "dtype": "--dtype",
    "dtypes": "--dtype",
    "launcher.entry": "--entry",
    "launcher.file": "KERNEL",
    "layout": "--layout",
    "layouts": "--layout",
    "parameters": "--param",
    "references": "--reference",
    "regimes": "--regime",
    "sizes": "--size",
    "variants": "--param",
}
_FIELD = r"(?:variants\[\d+\]\.(?!params))?(launcher\.\w+|\w+)(?:\[\d+\])?(?:\.params)?"


@contextmanager
def by_option(document: Path) -> Iterator[None]:
    """Inside, a mistake in a field of the document is raised as one in the option that the field comes from."""
    try:
        yield
    except LadderError as error:
        words = re.sub(
            f"^{re.escape(str(document))}: {_FIELD}",
            lambda field: f"{LINE}: {_OPTIONS.get(field[1], field[1])}",
            str(error),
        )
        raise LadderError(words) from error


def launched(
    path: Path,
    entry: str,
    problem: str | None,
    dtype: str | None,
    layout: str | None,
    params: Mapping[str, Any],
) -> Kernel:
    """The kernel of a launcher without a description. Raises LadderError for any mistake in what is said of it.

    As references of a GEMM do, it computes with alpha = 1 and beta = 0 alone.
    """
    accepted = [*PROBLEMS, "NAME.yaml of your own"]
    if problem is None:
        wanted = ", ".join(accepted)
        raise LadderError(f"{LINE}: --problem is missing; accepted: {wanted}")
    problem = problem_name(problem, Path())
    if problem not in PROBLEMS:
        raise refuse(LINE, "--problem", problem, accepted)
    solved = PROBLEMS[problem]
    document: dict[str, Any] = {
        "summary": "a launcher without a description",
        "problem": problem,
        "origin": ["the command line"],
        "launcher": {"file": path.name, "entry": entry},
        "dtypes": {dtype or solved.dtypes[0]: {}},
        "layouts": [layout] if layout else [],
        "min_arch": "sm_75",
        "parameters": {
            name: {"values": [value], "default": value, "description": "as asked for"}
            for name, value in params.items()
        },
    }
    if {*solved.scalars} & {*WEIGHTS}:
        document["weights"] = "none"
    whole = Path(os.path.abspath(path))
    with by_option(whole):
        return make_kernel(whole, document)


def references_of(
    kernels: dict[str, Kernel], checkout: Project, given: Words, against: Path | None
) -> tuple[list[Any], dict[str, Kernel]]:
    """References of kernels of one problem, as a sweep has them, and all kernels that it may name.

    Raises LadderError without any, and where the names of two kernels are the same.
    """
    if against is not None:
        option, path = "--against", str(against)
        if given:
            raise refuse(LINE, option, path, "--against or --reference, not both")
        other = described(against, option)
        if other.name in kernels:
            accepted = "a kernel of another name: copy its two files"
            why = f"both are called {other.name}"
            raise refuse(LINE, option, path, accepted, why)
        return [{"kernel": other.name}], {**kernels, other.name: other}
    problem = next(iter(kernels.values())).problem
    words = given or problem.libraries
    if not words:
        why = f"the problem {problem.name} has no library"
        accepted = "'{kernel: NAME}' and others, see docs/references.md"
        missing = f"--reference is missing: {why}"
        raise LadderError(f"{LINE}: {missing}; accepted: {accepted}")
    references = [parse_yaml(word, f"{LINE}: --reference") for word in words]
    names = [entry.get("kernel") for entry in references if isinstance(entry, dict)]
    catalog = load_kernels(checkout.kernels) if any(names) else {}
    for name, kernel in kernels.items():
        same = catalog.get(name, kernel)
        if name in names and not same.path.samefile(kernel.path):
            why = f"the name {name!r}, which --reference has, is {same.path}'s"
            raise LadderError(f"{kernel.path}: {why}")
    return references, catalog | kernels


def parameters(words: Words) -> dict[str, Any]:
    """Parameters given as NAME=VALUE."""
    values = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        twice = name in values
        values[name] = parse_yaml(value, f"{LINE}: --param: {word!r}")
        if not equals or twice or isinstance(values[name], list):
            accepted = "NAME=VALUE, each name once, the value a whole number or a word"
            raise refuse(LINE, "--param", word, accepted)
    return values


class Judging:
    """Says what becomes of each kernel as soon as it is known. code: the highest exit code so far."""

    def __init__(self, checkout: Project, file: Path | None) -> None:
        self.checkout = checkout
        self.code = 0
        self._said = set[str]()
        self._saying = threading.Lock()  # GPUs have a thread each
        self._file = file

    def look(self, view: PlanRecords, device: str, last: bool = False) -> None:
        """Say the verdicts of kernels whose cells all have records, or of all that the plan has."""
        for name in dict.fromkeys(task.cell.kernel for task in view.plan.tasks):
            if name in self._said:
                continue
            alone = replace(view, plan=only_of(view.plan, [name]))
            if not last and not alone.is_complete():
                continue
            published = self.checkout.published(slug_of(device)).tables
            components = tables.read("components", published, required=False)
            with self._saying:
                try:
                    cells = cells_of(alone, components)
                except LadderError as error:
                    self.give_up([name], error)
                else:
                    self.say(alone.plan, device, cells)

    def say(self, plan: Plan, device: str, cells: list[JudgedCell]) -> None:
        """Print a kernel's verdict, and write its JSON."""
        task = plan.tasks[0]
        facts = plan.variants[task.variant]
        log = self.checkout.root / plan.job["cubins"] / f"{facts.get('cubin')}.log"
        said = read_text(log) if log.is_file() else ""
        for cell in cells:
            cell["compile_log"] = said or None
        verdict, because = decide(cells)
        definition = plan.definition
        trust = "opaque" if "launcher" in facts else "compiled"
        fields = {
            "verdict": verdict,
            "exit_code": EXIT_CODES[verdict],
            "dtype": task.cell.dtype,
            "arch": plan.arch,
            "device": device or None,
            "trust": trust,
            "unseen": UNSEEN[trust],
            "tolerance": definition and definition.tolerance.model_dump(),
            "cells": cells,
        }
        try:
            template = TEMPLATES.get_template("judge.j2")
            text = template.render(variant=task.variant, because=because, **fields)
            to_stdout = self._file == STDOUT
            print(printable(text), file=sys.stderr if to_stdout else sys.stdout)
        finally:
            self._write(task.cell.kernel, fields)

    def give_up(self, names: Iterable[str], error: LadderError) -> None:
        """Say why kernels are not judged, of those that are not yet."""
        for name in names:
            if name not in self._said:
                logging.error("error: %s: %s", name, error)
                self._write(name, {"reason": str(error)})

    def _write(self, kernel: str, fields: Mapping[str, Any]) -> None:
        self._said.add(kernel)
        document = {**NOT_JUDGED, "kernel": kernel, **fields}
        self.code = max(self.code, document["exit_code"])
        write_verdict(self._file, document)


def judge(
    context: typer.Context,
    paths: Descriptions,
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
    entry: Annotated[
        str | None, typer.Option(help="Function of a launcher FILE.so or FILE.py.")
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option(
            help="What such a launcher solves: gemm, or your own (docs/own-problems.md)."
        ),
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
    """Judge kernels, which may lie anywhere: verify them, and time them against a reference.

    Several are shared out among the GPUs that are visible; their JSON is a line a kernel. Exit codes, the highest of
    any kernel's, where speed is that on this GPU in the first regime: 0 faster at every size, or it compiles; 1 a tie
    at some; 2 slower at some; 3 wrong (incorrect) or refused (out_of_bounds, stateful); 4 broken (compile_error,
    launch_error, timeout) or incomplete (unsupported); 5 not judged (a mistake on the command line or in a file, no
    GPU, a host too slow to time launches, a reference that failed, or another error). docs/judge.schema.json
    describes the JSON.
    """
    if json_ is not None and not takes_verdicts(json_):
        accepted = (
            "a new file in a folder that exists, one of JSON, or - for standard output"
        )
        raise refuse(LINE, "--json", str(json_), accepted)
    if problem is not None and entry is None:
        accepted = "a launcher FILE.so or FILE.py with --entry"
        raise refuse(LINE, "--problem", problem, accepted)
    if compile_only and (reference or against):
        option = "--reference" if reference else "--against"
        value = " ".join(reference or [str(against)])
        accepted = "--compile-only alone, which times nothing"
        raise refuse(LINE, option, value, accepted)
    checkout = Project(Path(os.path.abspath(project(context).root)))
    judging = Judging(checkout, json_)
    params = parameters(param)
    names = [path.stem for path in paths]
    if len({*names}) < len(names):
        accepted = "kernels of different names"
        raise refuse(LINE, "KERNEL", " ".join(names), accepted)
    groups = dict[tuple[str, str], dict[str, Kernel]]()
    for path in paths:
        try:
            kernel = (
                described(path, "KERNEL")
                if entry is None
                else launched(path, entry, problem, dtype, layout, params)
            )
            if kernel.launcher and compile_only:
                accepted = "a source or a cubin; leave out --compile-only, on a GPU"
                why = "nothing of a launcher is compiled here"
                raise refuse(LINE, "KERNEL", str(path), accepted, why)
        except LadderError as error:
            judging.give_up([path.stem], error)
            continue
        group = kernel.problem.name, dtype or next(iter(kernel.dtypes))
        groups.setdefault(group, {})[kernel.name] = kernel
    over = settings_of(config, arch=arch, device="auto")
    setup = set_up(checkout.root, (), over)
    sizes = [parse_yaml(word, f"{LINE}: --size") for word in size or ()]
    # All of them, so that no mistake is found behind an hour of measuring.
    sweeps = list[tuple[Sweep, dict[str, Kernel]]]()
    for (solved, of_dtype), members in groups.items():
        references: list[Any] = [{"kernel": next(iter(members))}]
        catalog = members
        if not compile_only:
            references, catalog = references_of(members, checkout, reference, against)
        fields = {
            "title": " ".join(members),
            "question": "Is it right, and how fast?",
            "problem": solved,
            "dtypes": [of_dtype],
            "layout": layout,
            "sizes": sizes or [usual_size(PROBLEMS[solved])],
            "variants": [
                {"kernel": name, "params": params, "unsupported": "record"}
                for name in members
            ],
            "references": references,
            "regimes": regime or ["cold", "warm"],
        }
        with by_option(LINE):
            made = make_sweep(LINE, fields, catalog, checkout.root)
        sweeps.append((replace(made, name="judge"), members))
    for sweep, members in sweeps:
        try:
            if compile_only:
                plan = compiled(setup, sweep, os.cpu_count() or 1)
                for name in members:
                    alone = only_of(plan, [name])
                    judging.say(alone, "", compiled_cells(alone))
            else:
                view, device = measured(setup, sweep, judging.look)
                judging.look(view, device, last=True)
        except LadderError as error:
            judging.give_up(members, error)
    raise typer.Exit(judging.code)


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
    setup = set_up(project(context).root, (), settings_of(config, device="auto"))
    view, gpu = measured(setup, alone)
    now = reproduction.again(view, row)
    print(reproduction.measured_text(row, now, gpu))
    raise typer.Exit(int(reproduction.inside(row, now) is False))
