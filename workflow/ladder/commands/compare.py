"""Compare two runs; exits 1 on a regression."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument(
        "run_a", type=Path, metavar="RUN_A", help="results/RUN/DEVICE or results/published/DEVICE"
    )
    parser.add_argument("run_b", type=Path, metavar="RUN_B", help="the run held against it")
    parser.add_argument(
        "--by",
        choices=["speedup", "time"],
        default="speedup",
        help="compare the speed relative to the reference (default), which clocks do not move, or the time",
    )
    parser.add_argument(
        "--threshold", type=float, default=2.0, help="regressions above this many percent count (default 2)"
    )
    parser.add_argument(
        "--noise",
        type=float,
        help="run-to-run margin in percent (default 0.5 on one GPU, 2 between two of one model)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a cell is slower beyond noise by more than the threshold, or no longer ok."""
    from ladder.compare import NOISE, NOISE_ACROSS_GPUS, compare_folders, describe, on_one_gpu, text
    from ladder.errors import refuse

    for name in ("threshold", "noise"):
        if (value := getattr(arguments, name)) is not None and value < 0:
            raise refuse("command line", f"--{name}", value, "a percentage >= 0")
    alike = on_one_gpu(arguments.run_a, arguments.run_b)
    margin = NOISE_ACROSS_GPUS if alike is False else NOISE
    if arguments.noise is not None:
        margin = arguments.noise / 100
    result = compare_folders(arguments.run_a, arguments.run_b, arguments.by, margin)
    print(f"A  {arguments.run_a}: {describe(arguments.run_a)}")
    print(f"B  {arguments.run_b}: {describe(arguments.run_b)}")
    if alike is False:
        print("   two GPUs of one model: they differ by up to 2 %, also in ratios")
    print(f"   changes beyond {100 * margin:g} % count")
    print(text(result, arguments.by))
    worse = result.regressions(arguments.threshold / 100)
    if worse or result.broken:
        print(
            f"regression: {len(worse)} cells slower by more than {arguments.threshold:g} %, "
            f"{len(result.broken)} broken"
        )
        return 1
    return 0
