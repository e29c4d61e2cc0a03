"""The command line: finds the step that is asked for, and turns mistakes into messages and exit codes."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder import __version__
from ladder.model.errors import LadderError

STEPS = {
    "check": ("inspect", "Check configuration, kernels, sweeps and claims, and say what a run would do."),
    "variants": ("inspect", "List the variants of the chosen sweeps."),
    "banks": ("inspect", "Predict bank conflicts of a shared-memory access."),
    "reference": ("inspect", "Print the field reference of document kinds."),
    "plan": ("build", "Work out the measuring plan of a sweep."),
    "compile": ("build", "Compile one variant to a cubin and its facts."),
    "harness": ("build", "Compile the measuring harness's own kernels for a problem."),
    "measure": ("measure", "Verify and time the cells of a sweep on a GPU."),
    "profile": ("measure", "Collect Nsight Compute counters for a sweep."),
    "clock": ("measure", "Hold the timer against NVBench and against itself."),
    "throughput": ("measure", "Time a whole tuning sweep from an empty cache."),
    "collect": ("tables", "Turn the records of a sweep into tables."),
    "merge": ("tables", "Join the tables of all sweeps of a run."),
    "environment": ("tables", "Record where a run's numbers were measured, from their records."),
    "claims": ("claims", "Decide the claims from the tables."),
    "figures": ("report", "Draw the figures of a sweep."),
    "report": ("report", "Write report.md."),
    "compare": ("results", "Compare the records of two runs; exits 1 on a regression."),
    "history": ("results", "Show every record of a cell, by commit, driver and GPU."),
    "choose": ("results", "Print what one sweep found fastest at each size of another."),
    "publish": ("publish", "Merge a run's records into what is published of its device."),
}
"""Step -> the module of this folder that holds it as a function (`import_` where the word is taken), and what it
does.
"""

MISTAKE, CRASH = 2, 3
"""Exit codes: something that the user gave is wrong; the program itself failed."""

_WITH_VALUE = ("--root", "--log")


def _chosen(words: Sequence[str]) -> str | None:
    """The step among the words of a command line: the first that is neither an option nor an option's value."""
    left = iter(words)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif not word.startswith("-"):
            return word
    return None


def _step(name: str) -> Callable[..., Any]:
    module = importlib.import_module(f"ladder.cli.{STEPS[name][0]}")
    step: Callable[..., Any] = getattr(module, name, None) or getattr(module, f"{name}_")
    return step


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _begin(
    context: typer.Context,
    root: Annotated[Path, typer.Option(help="Project folder.")] = Path(),
    log: Annotated[Path | None, typer.Option(help="Also write messages to this file.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Every step of the pipeline, as the workflow runs it and by hand."""
    context.obj = root
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(log, mode="w", encoding="utf-8"))
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=handlers)


def _app(chosen: str | None) -> typer.Typer:
    """The command line. Only the chosen step is imported: a compile job must not pay for plotting."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(_begin)
    for name, (_, text) in STEPS.items():
        app.command(name, help=text if name != chosen else None)(
            _step(name) if name == chosen else lambda: None
        )
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run one step and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        _app(_chosen(words))(words, prog_name="python -m ladder")
    except SystemExit as leave:
        sys.stdout.flush()
        return leave.code if isinstance(leave.code, int) else 0
    except LadderError as error:
        logging.error("error: %s", error)
        return MISTAKE
    except BrokenPipeError:
        # The reader, such as `head`, has what it wanted; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        logging.exception("the program failed; this is no mistake of yours:")
        return CRASH
    return 0
