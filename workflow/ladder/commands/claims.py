"""Decide the claims from the tables."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument(
        "--run-folder", type=Path, required=True, help="results/RUN/DEVICE, with merged tables"
    )
    parser.add_argument("--claims", type=Path, help="the ledger (default: config/claims.yaml)")


def run(arguments: argparse.Namespace) -> int:
    """Write tables/claims.csv and .parquet."""
    import logging

    from ladder import tables
    from ladder.catalog import load_catalog
    from ladder.layout import Project, RunFolder
    from ladder.ledger import load_claims
    from ladder.statistics import records
    from ladder.sweeps import load_sweeps
    from ladder.verdicts import Tables, decide_all

    project, folder = Project(arguments.root), RunFolder(arguments.run_folder)
    sweeps = load_sweeps(project.sweeps, load_catalog(project.kernels), None)
    claims = load_claims(arguments.claims or project.config / "claims.yaml", sweeps)
    frames = {name: tables.read(name, folder.tables) for name in ("timings", "resources", "metrics", "notes")}
    part = {
        name: [variant.id for variant in sweep.variants]
        for name, sweep in sweeps.items()
        if folder.sweep(name).is_dir()
    }
    decided = decide_all(claims, Tables(**frames, variants=part))
    tables.write("claims", decided, folder.tables)
    for row in records(decided):
        logging.info("%s: %s", row["id"], row["verdict"])
    return 0
