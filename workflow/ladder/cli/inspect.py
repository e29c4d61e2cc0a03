"""Steps that look at the project, at one access or at two runs, and change no result."""

from pathlib import Path
from typing import Annotated

import typer

from ladder.catalogue.config import Config as ConfigDocument
from ladder.catalogue.field_docs import BEGIN, END, field_reference
from ladder.catalogue.sweeps import SweepDocument
from ladder.claims.ledger import CLAIMS, check_claims, check_names
from ladder.cli.load import run_of
from ladder.cli.options import Config, Configfile, project, with_tables
from ladder.model.document import Document
from ladder.model.errors import LadderError
from ladder.model.files import read_text, replace_file, write_json
from ladder.model.kernel import Kernel
from ladder.report.document import learnt, running
from ladder.results import compare as comparing
from ladder.results import tables
from ladder.results.forecast import forecast
from ladder.results.run_data import RunData
from ladder.results.templates import TEMPLATES

KINDS: dict[str, tuple[str, type[Document]]] = {
    "config": ("config/config.yaml", ConfigDocument),
    "sweep": ("config/sweeps/NAME.yaml", SweepDocument),
    "kernel": ("kernels/…/NAME.yaml", Kernel),
}
"""Document kinds, where such documents stand, and their models."""


def check(
    context: typer.Context,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Check configuration, kernels, sweeps and claims, and say what a run would do."""
    run = run_of(context, configfile, config)
    check_claims(run.sweeps, run.config.measure.precision)
    check_names(run.every_sweep)
    print(TEMPLATES.get_template("check.j2").render(run=run, claims=CLAIMS), end="")
    if run.measures:
        print(forecast(run))


def reference(
    context: typer.Context,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Update the schemas, both README.md and docs/run.md."
        ),
    ] = False,
) -> None:
    """Print the field reference of all documents, or write it down with schemas, README's numbers and cards."""
    text = "\n".join(field_reference(name, *KINDS[name]) for name in KINDS)
    if not write:
        print(text, end="")
        return
    checkout = project(context)
    for name, (_, document) in KINDS.items():
        path = checkout.config / f"schemas/{name}.json"
        write_json(path, document.model_json_schema())
    run = run_of(context, None, None)
    published = checkout.published(run.config.published)
    data = RunData.read(published, run.every_sweep)
    for readme, lines in (
        (checkout.config / "README.md", text),
        (checkout.root / "README.md", learnt(published, data, checkout.root)),
        (checkout.root / "docs/run.md", running(run.catalog, checkout.kernels)),
    ):
        old = read_text(readme)
        if old.count(BEGIN) != 1 or old.count(END) != 1:
            raise LadderError(f"{readme}: the marks {BEGIN} and {END} are missing")
        before, after = old.split(BEGIN)[0], old.split(END)[1]
        new = f"{before}{BEGIN}\n\n{lines.strip()}\n\n{END}{after}"
        replace_file(readme, new.encode())


RunA = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_A", help="results/RUN/DEVICE or results/published/DEVICE"
    ),
]
RunB = Annotated[Path, typer.Argument(metavar="RUN_B", help="The run held against it.")]
Threshold = Annotated[
    float,
    typer.Option(min=0, max=99, help="Regressions above this many percent count."),
]


def compare(run_a: RunA, run_b: RunB, threshold: Threshold = 2.0) -> None:
    """Compare the speed-ups in the tables of two runs; exits 1 on a regression."""
    sides = []
    for path, field in ((run_a, "RUN_A"), (run_b, "RUN_B")):
        folder = with_tables(path, field).tables
        names = ("timings", "sessions")
        sides.append({name: tables.read(name, folder) for name in names})
    result = comparing.compare(*sides)
    broken = result.others["broken"]
    kinds = ("broken", "repaired", "over another library")
    if result.cells.empty and not any(result.others[kind] for kind in kinds):
        why = "have no cell in common that gave a result"
        raise LadderError(f"{run_a} and {run_b} {why}")
    worse = int((result.slower["faster"] < -threshold / 100).sum())
    gpus = [len(comparing.gpus_of(side["sessions"])) for side in sides]
    text = TEMPLATES.get_template("compare.j2").render(
        runs=[("A", run_a, gpus[0]), ("B", run_b, gpus[1])],
        result=result,
        threshold=threshold,
        worse=worse,
        broken=len(broken),
    )
    print(text, end="")
    if worse or broken:
        raise typer.Exit(1)
