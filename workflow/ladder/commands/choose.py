"""Learn what a kernel's configurations cost from a sweep's timings, for `params: best`."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--sweep", required=True, help="sweep of one kernel over its configurations")
    parser.add_argument(
        "--tables",
        type=Path,
        required=True,
        help="folder of its timings, such as results/published/nvidia-h200",
    )
    parser.add_argument("--out", type=Path, help="file to write (default: config/best/KERNEL.yaml)")


def run(arguments: argparse.Namespace) -> int:
    """Raises LadderError for a sweep that does not exist, or that has no results or no record of the run there."""
    import logging

    from ladder import tables
    from ladder.catalog import load_catalog
    from ladder.choices import choose
    from ladder.collect import read_json
    from ladder.errors import LadderError
    from ladder.layout import Project
    from ladder.sweeps import load_sweeps
    from ladder.tables import replace_file

    project = Project(arguments.root)
    sweep = load_sweeps(project.sweeps, load_catalog(project.kernels), [arguments.sweep])[arguments.sweep]
    folders = (arguments.tables, arguments.tables.parent)
    environment = next(filter(None, (read_json(folder / "environment.json") for folder in folders)), None)
    if environment is None:
        raise LadderError(
            f"{arguments.tables}: no environment.json, here or above, says where the timings are from"
        )
    source = {
        "sweep": sweep.name,
        "gpu": (environment.get("gpu") or {}).get("name"),
        "started": environment.get("started"),
        "tree": (environment.get("tree") or {}).get("digest"),
    }
    text = choose(sweep, tables.read("timings", arguments.tables), source)
    out = arguments.out or project.best / f"{sweep.entries[0].variant.kernel.name}.yaml"
    replace_file(out, text.encode())
    logging.info("%s: from %d sizes", out, len(sweep.sizes))
    return 0
