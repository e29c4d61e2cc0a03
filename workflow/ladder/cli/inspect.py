"""Steps that look at the project, or at one access, and change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ladder.build.banks import (
    BANKS,
    DEFAULT_MERGE,
    LANES,
    MATRIX_ROWS,
    MERGE,
    ROW_BYTES,
    conflict_degree,
    served,
    wavefronts,
)
from ladder.catalogue.config import Config as ConfigDocument
from ladder.catalogue.reference import BEGIN, field_reference
from ladder.catalogue.sweeps import SweepDocument
from ladder.claims.ledger import ClaimsDocument, load_claims
from ladder.cli.options import Config, Configfile, run_of
from ladder.model.document import Document
from ladder.model.errors import LadderError, refuse
from ladder.model.expressions import evaluate_int
from ladder.model.files import replace_file
from ladder.model.kernel import Kernel
from ladder.results.statistics import size_label

KINDS: dict[str, tuple[str, type[Document]]] = {
    "config": ("config/config.yaml", ConfigDocument),
    "sweep": ("config/sweeps/NAME.yaml", SweepDocument),
    "kernel": ("kernels/…/NAME.yaml", Kernel),
    "claims": ("config/claims.yaml", ClaimsDocument),
}
"""Document kinds, where such documents stand, and their models."""


def check(context: typer.Context, configfile: Configfile = None, config: Config = None) -> None:
    """Check configuration, kernels, sweeps and claims, and say what a run would do."""
    run = run_of(context, configfile, config)
    claims = load_claims(run.project.claims, run.every_sweep)
    print(f"device {run.device}, architecture {run.arch}, results in {run.folder.root}")
    print(f"{len(run.catalog)} kernels; {len(run.variants)} variants to compile; {len(claims)} claims")
    for name, sweep in run.sweeps.items():
        cells, sizes = len(sweep.asked), len(sweep.sizes)
        dropped = f", {sweep.excluded} combinations excluded" if sweep.excluded else ""
        print(f"  {name}: {len(sweep.entries)} variants, {sizes} sizes, {cells} cells{dropped}")
        if sweep.unasked:
            unasked = "; ".join(size_label(size) for size in sweep.unasked)
            print(f"    nothing is asked for at {unasked}")
    if not run.measures:
        published = run.published
        source = published.root if published else f"none: nothing is published for {run.config.published}"
        print(f"no GPU: timings are taken from {source}")


def variants(
    context: typer.Context,
    sweep: Annotated[list[str] | None, typer.Option(help="List this sweep's only; may be repeated.")] = None,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """List the variants of the chosen sweeps, one line each: identifier, sweeps, parameters."""
    run = run_of(context, configfile, config, {"sweeps": sweep} if sweep else {})
    for name, variant in run.variants.items():
        users = [sweep.name for sweep in run.sweeps.values() if variant in sweep.variants]
        print(f"{name}\t{','.join(users)}\t{json.dumps(dict(variant.params))}")


def reference(
    kind: Annotated[
        list[str] | None, typer.Argument(help=f"Document kinds (default: {', '.join(KINDS)}).")
    ] = None,
    readme: Annotated[Path | None, typer.Option(help="Rewrite this file from its reference mark on.")] = None,
) -> None:
    """Print the field reference of document kinds, or rewrite it in config/README.md."""
    for name in kind or ():
        if name not in KINDS:
            raise refuse("command line", "kind", name, KINDS)
    text = "\n".join(field_reference(name, *KINDS[name]) for name in kind or KINDS)
    if readme is None:
        print(text, end="")
        return
    old = readme.read_text(encoding="utf-8")
    if BEGIN not in old:
        raise LadderError(f"{readme}: the mark {BEGIN} is missing")
    replace_file(readme, f"{old.split(BEGIN, 1)[0]}{BEGIN}\n\n{text}".encode())


def banks(
    offset: Annotated[
        str, typer.Argument(help="Byte offset of a lane, an expression over lane such as '(lane % 8) * 144'.")
    ],
    width: Annotated[int, typer.Option(help="Bytes per lane, read or written: 1, 2, 4, 8 or 16.")] = 4,
    lanes: Annotated[int, typer.Option(help="Active lanes, from lane 0.")] = LANES,
    matrices: Annotated[
        int | None, typer.Option(help="The access is ldmatrix of 1, 2 or 4 matrices; offsets are its rows'.")
    ] = None,
    merge: Annotated[
        str, typer.Option(help=f"When phases are served together: {', '.join(MERGE)}.")
    ] = DEFAULT_MERGE,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the banks.")] = None,
) -> None:
    """Predict bank conflicts of a shared-memory access: wavefronts, conflict degree and the lanes each bank serves."""
    if not 1 <= lanes <= LANES:
        raise refuse("command line", "--lanes", lanes, "1 to 32")
    if width not in (1, 2, 4, 8, 16):
        raise refuse("command line", "--width", width, [1, 2, 4, 8, 16])
    if matrices not in (None, 1, 2, 4):
        raise refuse("command line", "--matrices", matrices, [1, 2, 4])
    if merge not in MERGE:
        raise refuse("command line", "--merge", merge, MERGE)
    if picture is not None and picture.suffix != ".png":
        raise refuse("command line", "--picture", str(picture), "a file name that ends in .png")
    if matrices is not None:
        lanes, width, merge = MATRIX_ROWS * matrices, ROW_BYTES, "none"
    offsets = [evaluate_int(offset, {"lane": lane}) for lane in range(lanes)]
    try:
        count = wavefronts(offsets, width, merge)
    except ValueError as error:
        raise LadderError(f"command line: offset: {error}") from error
    degree = conflict_degree(offsets, width, merge)
    print(f"wavefronts {count}, conflict degree {degree:g}")
    phases = served(offsets, width, merge)
    for number, phase in enumerate(phases):
        print(f"phase {number}:")
        for bank in range(BANKS):
            held = [lane for lanes in phase.get(bank, {}).values() for lane in lanes]
            print(f"  bank {bank:2d}: {' '.join(str(lane) for lane in sorted(held))}")
    if picture is not None:
        from ladder.report.figures.bank_map import draw_banks  # plotting takes a second to import

        access = "ldmatrix rows" if matrices is not None else "lanes"
        asked = f"{access} at byte {offset}, {width} bytes each"
        try:
            draw_banks(phases, f"{asked}: conflict degree {degree:g}, {count} wavefronts", picture)
        except OSError as error:
            raise LadderError(f"command line: --picture: {picture} cannot be written: {error}") from error
