"""Steps about several runs: comparing, history, choosing."""

from pathlib import Path
from typing import Annotated

import typer

from ladder.catalogue.cells import parse_cell
from ladder.catalogue.kernels import load_catalog
from ladder.cli.options import project, sweeps_of
from ladder.model.errors import LadderError, refuse
from ladder.results import choose as choosing
from ladder.results import compare as comparing
from ladder.results import history as past
from ladder.results import tables
from ladder.results.archive import read_records

RunA = Annotated[Path, typer.Argument(metavar="RUN_A", help="results/RUN/DEVICE or results/published/DEVICE")]
RunB = Annotated[Path, typer.Argument(metavar="RUN_B", help="The run held against it.")]
By = Annotated[str, typer.Option(help="speedup (over the reference, which clocks do not move) or time.")]
Threshold = Annotated[float, typer.Option(help="Regressions above this many percent count.")]
Noise = Annotated[float | None, typer.Option(help="Margin in percent (default: the noise model's).")]
CellName = Annotated[
    str, typer.Argument(metavar="CELL", help="VARIANT@SIZE:REGIME; size and regime may be left out.")
]
Device = Annotated[str, typer.Option(help="Device whose runs and publications are searched.")]
Source = Annotated[str, typer.Argument(help="Sweep over configurations.")]
Target = Annotated[str, typer.Argument(help="Sweep whose sizes are wanted.")]
Timings = Annotated[Path, typer.Argument(help="Folder of timings, such as results/published/nvidia-h200.")]


def compare(
    run_a: RunA, run_b: RunB, by: By = "speedup", threshold: Threshold = 2.0, noise: Noise = None
) -> None:
    """Compare the records of two runs, per GPU and pooled; exits 1 on a regression."""
    if by not in comparing.MEASURES:
        raise refuse("command line", "--by", by, comparing.MEASURES)
    for name, value in (("threshold", threshold), ("noise", noise)):
        if value is not None and not 0 <= value < 100:
            raise refuse("command line", f"--{name}", value, "a percentage from 0 to 100")
    before, after = read_records(run_a), read_records(run_b)
    results = comparing.compare(before, after, by, None if noise is None else noise / 100)
    pooled = results[-1]
    if not (pooled.changes or pooled.broken or pooled.repaired):
        raise LadderError(f"{run_a} and {run_b} have no cell in common that gave a result")
    print(f"A  {run_a}: {comparing.describe(before)}")
    print(f"B  {run_b}: {comparing.describe(after)}")
    print("\n\n".join(comparing.text(result, by) for result in results))
    worse = {change.name for result in results for change in result.regressions(threshold / 100)}
    if worse or pooled.broken:
        slower = f"{len(worse)} cells slower by more than {threshold:g} %"
        print(f"regression: {slower}, {len(pooled.broken)} broken")
        raise typer.Exit(1)


def history(context: typer.Context, cell: CellName, device: Device = "nvidia-h200") -> None:
    """Show every record of a cell, by commit, driver and GPU."""
    own = project(context)
    wanted = parse_cell(cell, load_catalog(own.kernels))
    folders = [path.parent for path in sorted(own.results.glob(f"*/{device}/records"))]
    folders.sort(key=lambda folder: folder.parent.name != "published")
    rows = past.history({folder.parent.name: read_records(folder) for folder in folders}, wanted)
    if len(rows) == 1:
        raise LadderError(f"command line: CELL: {cell!r}: no record of it in {own.results}/*/{device}")
    print(past.aligned(rows))


def choose(context: typer.Context, source: Source, target: Target, folder: Timings) -> None:
    """Print entries for a sweep's `variants`: what another sweep found fastest at each of its sizes."""
    sweeps = sweeps_of(context, [source, target])
    entries = choosing.choose(sweeps[source], sweeps[target], tables.read("timings", folder))
    print(choosing.as_yaml(entries), end="")
