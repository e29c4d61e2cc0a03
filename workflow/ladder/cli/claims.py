"""The step that decides the claims."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from ladder.claims.decide import decide_tables
from ladder.claims.ledger import load_claims
from ladder.cli.options import Folder, project, sweeps_of
from ladder.model.folders import RunFolder
from ladder.results.statistics import records


def claims(
    context: typer.Context,
    folder_: Folder,
    ledger: Annotated[
        Path | None, typer.Option("--claims", help="The ledger (default: config/claims.yaml).")
    ] = None,
) -> None:
    """Decide the claims from the tables."""
    folder, sweeps = RunFolder(folder_), sweeps_of(context, None)
    given = load_claims(ledger or project(context).claims, sweeps)
    part = {
        name: [variant.id for variant in sweep.variants]
        for name, sweep in sweeps.items()
        if folder.sweep(name).is_dir()
    }
    for row in records(decide_tables(given, folder.tables, part)):
        logging.info("%s: %s", row["id"], row["verdict"])
