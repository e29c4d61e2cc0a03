"""Steps about several runs: comparing and history."""

from pathlib import Path
from typing import Annotated

import typer

from ladder.cli.options import project
from ladder.model.errors import LadderError, refuse
from ladder.results import compare as comparing
from ladder.results import history as past
from ladder.results.archive import read_records

RunA = Annotated[Path, typer.Argument(metavar="RUN_A", help="results/RUN/DEVICE or results/published/DEVICE")]
RunB = Annotated[Path, typer.Argument(metavar="RUN_B", help="The run held against it.")]
By = Annotated[str, typer.Option(help="speedup (over the reference, which clocks do not move) or time.")]
Threshold = Annotated[float, typer.Option(help="Regressions above this many percent count.")]
Noise = Annotated[float | None, typer.Option(help="Margin in percent (default: the noise model's).")]
Pattern = Annotated[
    str, typer.Argument(metavar="CELL", help="VARIANT@SIZE:REGIME, or a pattern such as 'gemm_naive*@4096'.")
]
Device = Annotated[str, typer.Option(help="Device whose runs and publications are searched.")]


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


def history(context: typer.Context, cell: Pattern, device: Device = "nvidia-h200") -> None:
    """Show every record of a cell, by commit, driver and GPU; of cells of one name each by its parameters."""
    folders = [path.parent for path in sorted(project(context).results.glob(f"*/{device}/records"))]
    folders.sort(key=lambda folder: folder.parent.name != "published")
    found = past.history({folder.parent.name: read_records(folder) for folder in folders}, cell)
    if not found:
        raise LadderError(f"command line: CELL: {cell!r}: no record of it under {project(context).results}")
    print("\n\n".join(found))
