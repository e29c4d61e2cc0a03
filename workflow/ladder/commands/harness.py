"""Compile the measuring harness's own kernels."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--arch", required=True, help="architecture, such as sm_90a")
    parser.add_argument("--cubin", type=Path, required=True, help="file to write")


def run(arguments: argparse.Namespace) -> int:
    """Write the harness cubin with its symbols."""
    from ladder.harness import compile_harness
    from ladder.tables import replace_file

    replace_file(arguments.cubin, compile_harness(arguments.arch))
    return 0
