"""`python -m ladder STEP …`: every step of the pipeline, as the workflow runs it and by hand."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path

from ladder import __version__
from ladder.errors import LadderError

COMMANDS = {
    "check": "check configuration, kernels, sweeps and claims, and say what a run would do",
    "variants": "list the variants of the chosen sweeps",
    "plan": "work out the measuring plan of a sweep",
    "compile": "compile one variant to a cubin and its facts",
    "harness": "compile the measuring harness's own kernels",
    "measure": "verify and time the cells of a sweep on a GPU",
    "profile": "collect Nsight Compute counters for a sweep",
    "collect": "turn raw records of a sweep into tables",
    "merge": "join the tables of all sweeps of a run",
    "environment": "record GPU, driver, packages and the digest of the tree",
    "clock": "hold the timer against NVBench and against itself",
    "throughput": "time a whole tuning sweep from an empty cache",
    "banks": "predict bank conflicts of a shared-memory access",
    "choose": "choose a kernel's configurations by shape from a sweep's timings",
    "figures": "draw the figures of a sweep",
    "claims": "decide the claims from the tables",
    "report": "write report.md",
    "compare": "compare two runs; exits 1 on a regression",
    "publish": "copy a run into results/published",
    "reference": "print the field reference of a document kind",
}
"""Steps by name, each a module in ladder.commands with configure(parser) and run(arguments) -> exit code."""


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ladder", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--root", type=Path, default=Path(), help="project folder (default: the current one)")
    parser.add_argument("--log", type=Path, help="also write messages to this file")
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    for name, text in COMMANDS.items():
        step = steps.add_parser(name, help=text, description=text)
        if name == chosen:
            # Only the chosen step is imported: a compile job must not pay for plotting.
            importlib.import_module(f"ladder.commands.{name}").configure(step)
    return parser


def _log_to(path: Path | None) -> None:
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=handlers)


def main(arguments: list[str] | None = None) -> int:
    """Run one step. Exit code 2 for a mistake in what the user gave."""
    words = sys.argv[1:] if arguments is None else arguments
    chosen = next((word for word in words if word in COMMANDS), None)
    parsed = _parser(chosen).parse_args(words)
    _log_to(parsed.log)
    try:
        module = importlib.import_module(f"ladder.commands.{parsed.step}")
        code: int = module.run(parsed)
        sys.stdout.flush()
        return code
    except LadderError as error:
        logging.error("error: %s", error)
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, has what it wanted; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
