"""Check configuration, kernels, sweeps and claims, and say what a run would do."""

from __future__ import annotations

import argparse

from ladder.commands import arguments as common
from ladder.statistics import size_label


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    common.add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Raises LadderError for the first mistake found."""
    run = common.load(arguments)
    print(f"device {run.device}, architecture {run.arch}, results in {run.folder.root}")
    print(f"{len(run.catalog)} kernels; {len(run.variants)} variants to compile; {len(run.claims)} claims")
    for name, sweep in run.sweeps.items():
        cells, sizes = len(list(sweep.cells())), len(sweep.sizes)
        dropped = f", {sweep.excluded} combinations excluded" if sweep.excluded else ""
        print(f"  {name}: {len(sweep.entries)} variants, {sizes} sizes, {cells} cells{dropped}")
        if sweep.unasked:
            unasked = "; ".join(size_label(size) for size in sweep.unasked)
            print(f"    nothing is asked for at {unasked}")
    if not run.measures:
        source = run.published or "none: nothing is published for " + run.config.published
        print(f"no GPU: timings are taken from {source}")
    return 0
