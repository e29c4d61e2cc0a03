"""Steps about several runs: comparing, history, choosing, publishing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ladder.catalogue.cells import parse_cell
from ladder.catalogue.kernels import load_catalog
from ladder.cli.options import project, sweeps_of
from ladder.measure.store import Records
from ladder.model.errors import LadderError, refuse
from ladder.results import tables
from ladder.results.choose import as_yaml
from ladder.results.choose import choose as chosen_entries
from ladder.results.compare import MEASURES, describe, text
from ladder.results.compare import compare as compared
from ladder.results.history import aligned
from ladder.results.history import history as rows_of_cell
from ladder.results.sources import every_folder, read_records


def compare(
    run_a: Annotated[
        Path, typer.Argument(metavar="RUN_A", help="results/RUN/DEVICE or results/published/DEVICE")
    ],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run held against it.")],
    by: Annotated[
        str, typer.Option(help="speedup (over the reference, which clocks do not move) or time.")
    ] = "speedup",
    threshold: Annotated[float, typer.Option(help="Regressions above this many percent count.")] = 2.0,
    noise: Annotated[
        float | None, typer.Option(help="Margin in percent (default: the noise model's).")
    ] = None,
) -> None:
    """Compare the records of two runs, per GPU and pooled; exits 1 on a regression."""
    if by not in MEASURES:
        raise refuse("command line", "--by", by, MEASURES)
    for name, value in (("threshold", threshold), ("noise", noise)):
        if value is not None and not 0 <= value < 100:
            raise refuse("command line", f"--{name}", value, "a percentage from 0 to 100")
    before, after = read_records(run_a), read_records(run_b)
    results = compared(before, after, by, None if noise is None else noise / 100)
    pooled = results[-1]
    if not (pooled.changes or pooled.broken or pooled.repaired):
        raise LadderError(f"{run_a} and {run_b} have no cell in common that gave a result")
    print(f"A  {run_a}: {describe(before)}")
    print(f"B  {run_b}: {describe(after)}")
    print("\n\n".join(text(result, by) for result in results))
    worse = {change.name for result in results for change in result.regressions(threshold / 100)}
    if worse or pooled.broken:
        print(
            f"regression: {len(worse)} cells slower by more than {threshold:g} %, {len(pooled.broken)} broken"
        )
        raise typer.Exit(1)


def history(
    context: typer.Context,
    cell: Annotated[
        str, typer.Argument(metavar="CELL", help="VARIANT@SIZE:REGIME; size and regime may be left out.")
    ],
    device: Annotated[
        str, typer.Option(help="Device whose runs and publications are searched.")
    ] = "nvidia-h200",
) -> None:
    """Show every record of a cell, by commit, driver and GPU."""
    own = project(context)
    wanted = parse_cell(cell, load_catalog(own.kernels))
    folders = every_folder(own.results, device)
    sources: dict[str, Records] = {folder.parent.name: read_records(folder) for folder in folders}
    rows = rows_of_cell(sources, wanted)
    if len(rows) == 1:
        raise LadderError(f"command line: CELL: {cell!r}: no record of it in {own.results}/*/{device}")
    print(aligned(rows))


def choose(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="Sweep over configurations.")],
    target: Annotated[str, typer.Argument(help="Sweep whose sizes are wanted.")],
    folder: Annotated[Path, typer.Argument(help="Folder of timings, such as results/published/nvidia-h200.")],
) -> None:
    """Print entries for a sweep's `variants`: what another sweep found fastest at each of its sizes."""
    sweeps = sweeps_of(context, [source, target])
    print(as_yaml(chosen_entries(sweeps[source], sweeps[target], tables.read("timings", folder))), end="")
