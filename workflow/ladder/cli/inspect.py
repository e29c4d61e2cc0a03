"""Steps that look at the project, at one access or at several runs, and change no result."""

from pathlib import Path
from typing import Annotated

import typer

from ladder.catalogue.config import Config as ConfigDocument
from ladder.catalogue.field_docs import BEGIN, END, field_reference
from ladder.catalogue.sweeps import SweepDocument
from ladder.claims.ledger import CLAIMS, check_claims, check_names
from ladder.cli.load import run_of
from ladder.cli.options import Config, Configfile, project
from ladder.model.document import Document
from ladder.model.errors import LadderError, refuse
from ladder.model.files import replace_file, write_json
from ladder.model.kernel import Kernel
from ladder.report.document import learnt
from ladder.report.ladder_page import ladders
from ladder.results import compare as comparing
from ladder.results import history as past
from ladder.results.forecast import forecast
from ladder.results.published_records import read_records
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
        bool, typer.Option("--write", help="Update both README.md, ladder.md and the schemas.")
    ] = False,
) -> None:
    """Print the field reference of all documents, or write it down with schemas, README's numbers and ladder.md."""
    text = "\n".join(field_reference(name, *KINDS[name]) for name in KINDS)
    if not write:
        print(text, end="")
        return
    own = project(context)
    for name, (_, document) in KINDS.items():
        write_json(own.config / "schemas" / f"{name}.json", document.model_json_schema())
    run = run_of(context, None, None)
    published = own.published(run.config.published)
    data = RunData.read(published, run.every_sweep)
    replace_file(own.root / "docs" / "ladder.md", ladders(published, data, own.root).encode())
    for readme, lines in (
        (own.config / "README.md", text),
        (own.root / "README.md", learnt(published, data, own.root)),
    ):
        old = readme.read_text(encoding="utf-8")
        if old.count(BEGIN) != 1 or old.count(END) != 1:
            raise LadderError(f"{readme}: the marks {BEGIN} and {END} are missing")
        before, after = old.split(BEGIN)[0], old.split(END)[1]
        replace_file(readme, f"{before}{BEGIN}\n\n{lines.strip()}\n\n{END}{after}".encode())


RunA = Annotated[Path, typer.Argument(metavar="RUN_A", help="results/RUN/DEVICE or results/published/DEVICE")]
RunB = Annotated[Path, typer.Argument(metavar="RUN_B", help="The run held against it.")]
Threshold = Annotated[float, typer.Option(help="Regressions above this many percent count.")]
Pattern = Annotated[
    str, typer.Argument(metavar="CELL", help="VARIANT@SIZE:REGIME, or a pattern such as 'gemm_naive*@4096'.")
]
Device = Annotated[str, typer.Option(help="Device whose runs and publications are searched.")]


def compare(run_a: RunA, run_b: RunB, threshold: Threshold = 2.0) -> None:
    """Compare the speed-ups that two runs have recorded, per GPU and pooled; exits 1 on a regression."""
    if not 0 <= threshold < 100:
        raise refuse("command line", "--threshold", threshold, "a percentage from 0 to 100")
    before, after = read_records(run_a), read_records(run_b)
    results = comparing.compare(before, after)
    pooled = results[-1]
    # On any GPU: a cell that is wrong on one of several is ok in the pool.
    broken = {cell for result in results for cell in result.broken}
    if not (pooled.changes or broken or pooled.others["repaired"] or pooled.others[comparing.OTHER_LIBRARY]):
        raise LadderError(f"{run_a} and {run_b} have no cell in common that gave a result")
    slower = [change for result in results for change in result.beyond_noise()[0]]
    worse = {change.name for change in slower if -change.faster > threshold / 100}
    said = {"sides": [("A", run_a, before), ("B", run_b, after)], "results": results, "threshold": threshold}
    said |= {"worse": worse, "broken": broken}
    print(TEMPLATES.get_template("compare.j2").render(said), end="")
    if worse or broken:
        raise typer.Exit(1)


def history(context: typer.Context, cell: Pattern, device: Device = "nvidia-h200") -> None:
    """Show every record of a cell, by commit, driver and GPU; of cells of one name each by its parameters."""
    own = project(context)
    published, pattern = own.published(device), past.cell_pattern(cell)  # refuses what is no name
    folders = [path.parent for path in sorted(own.results.glob(f"*/{device}/records"))]
    folders.sort(key=lambda folder: folder.parent.name != "published")
    found = {folder.parent.name: past.history_rows(read_records(folder), pattern) for folder in folders}
    found |= {
        path.stem: past.read_history(path, pattern) for path in sorted(published.history.glob("*.parquet"))
    }
    if not (shown := past.history(found)):
        raise LadderError(f"command line: CELL: {cell!r}: no record of it under {own.results}")
    print("\n\n".join(shown))
