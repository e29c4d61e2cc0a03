"""Join the tables of all sweeps of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

CLOCK_FILES = ("clock_nvbench.csv", "clock_nvbench.parquet", "clock_aa.csv", "clock_aa.parquet")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--run-folder", type=Path, required=True, help="results/RUN/DEVICE")
    parser.add_argument("--sweep", action="append", required=True, help="a sweep to join; repeated, in order")
    parser.add_argument(
        "--published",
        type=Path,
        help="without a GPU: also take the checks of the timer from this published run",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write tables/{timings,metrics,resources,notes,jobs}.csv and .parquet."""
    from ladder.collect import merge, write_tables
    from ladder.layout import RunFolder
    from ladder.tables import replace_file

    folder = RunFolder(arguments.run_folder)
    write_tables(merge(folder, arguments.sweep), folder.tables)
    if arguments.published is not None:
        for name in (*CLOCK_FILES, "throughput.json"):
            if (source := arguments.published / name).is_file():
                target = folder.root if name == "throughput.json" else folder.tables
                replace_file(target / name, source.read_bytes())
    return 0
