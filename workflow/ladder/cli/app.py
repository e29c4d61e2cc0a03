"""The command line: finds the step that is asked for, and turns mistakes into messages and exit codes."""

import contextlib
import importlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder import __version__
from ladder.model.errors import LadderError
from ladder.model.files import write_json

STEPS = {
    "check": "inspect",
    "reference": "inspect",
    "compare": "inspect",
    "prepare": "build",
    "measure": "measure",
    "profile": "measure",
    "sanitize": "sanitize",
    "collect": "analyse",
    "environment": "analyse",
    "claims": "analyse",
    "figures": "analyse",
    "report": "report",
    "publish": "publish",
    "judge": "judge",
    "reproduce": "judge",
}
"""Step -> the module of this folder that holds it as a function."""

# Exit codes: something that the user gave is wrong; the program itself failed.
MISTAKE, CRASH = 2, 3
# In place of both for `judge`, whose exit codes up to 4 speak of the kernel.
UNJUDGED = 5
NOT_JUDGED: dict[str, Any] = {
    "version": 1,
    "verdict": "not judged",
    "exit_code": UNJUDGED,
    "reason": "",
    "kernel": None,
    "dtype": None,
    "arch": None,
    "device": None,
    "trust": None,
    "unseen": [],
    "tolerance": None,
    "cells": [],
}
"""The fields of judge's JSON. The version rises where a field goes or means something else."""


def printable(text: str) -> str:
    """Text that moves no terminal's cursor but to a new line: other control characters as \\x1b and the like."""
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode()
        for character in text.expandtabs()
    )


class _Printable(logging.Formatter):
    """Messages quote compilers and files: the lines of one are marked behind its first."""

    def format(self, record: logging.LogRecord) -> str:
        return printable("\n  | ".join(super().format(record).splitlines()))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _begin(
    context: typer.Context,
    root: Annotated[Path, typer.Option(help="Project folder.")] = Path(),
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Every step of the pipeline, as the workflow runs it and by hand."""
    context.obj = root.resolve() if ".." in root.parts else root


def _app(words: Sequence[str]) -> typer.Typer:
    """The command line. Only a step among its words is imported: a compile job must not pay for plotting."""
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(_begin)
    steps = [step for step in STEPS if step in words]
    for name in steps or STEPS:  # all for the help
        module = importlib.import_module(f"ladder.cli.{STEPS[name]}")
        app.command(name)(getattr(module, name))
    return app


def _settings_apart(words: Sequence[str]) -> list[str]:
    """`--config a=1 b=2`, as snakemake has it, with an option for each setting."""
    separate: list[str] = []
    in_settings = False
    for word in words:
        in_settings = in_settings and re.match(r"[a-z]\w*=", word) is not None
        if in_settings and separate[-1] != "--config":
            separate.append("--config")
        separate.append(word)
        in_settings = in_settings or word.partition("=")[0] == "--config"
    return separate


def _write_unjudged(words: Sequence[str], reason: str) -> None:
    """Write the JSON that `judge` was asked for, also where it did not get so far as to know its options."""
    file = ""
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--json":
            file = value if equals else "".join(words[place + 1 : place + 2])
    document = NOT_JUDGED | {"reason": reason}
    path = Path(file)
    if file == "-":
        print(json.dumps(document, indent=1))
    elif file and (path.is_file() or not path.exists()):
        write_json(path.resolve(), document)


def _run(words: Sequence[str], mistake: int, crash: int) -> tuple[int, str]:
    """Run one step: its exit code, and why it came to no end. Raises BrokenPipeError where nobody reads on."""
    try:
        try:
            _app(words)(words, prog_name="ladder")
        finally:
            sys.stdout.flush()
    except LadderError as error:
        logging.error("error: %s", error)
        return mistake, str(error)
    except SystemExit as leave:
        cause = leave.__context__
        if isinstance(cause, BrokenPipeError):
            raise cause from None
        if isinstance(cause, typer.Exit):
            return (leave.code if isinstance(leave.code, int) else 0), ""
        # Typer has shown it.
        said = getattr(cause, "format_message", lambda: str(cause))
        return mistake, said()
    except BrokenPipeError:
        raise
    except OSError as error:
        place = error.filename2 or error.filename  # of a copy, the place that is full
        reason = f"{place}: {error.strerror}" if place else str(error)
        logging.error("error: %s", reason)
        return mistake, reason
    except Exception as error:
        logging.exception("the program failed; this is no mistake of yours:")
        return crash, f"the program failed: {error!r}"
    return 0, ""


def main(arguments: list[str] | None = None) -> int:
    """Run one step and return its exit code."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    words = _settings_apart(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # closed by who started it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    mistake, crash, unread = MISTAKE, CRASH, 0
    judges = next((word for word in words if word in STEPS), "") == "judge"
    if judges:
        mistake = crash = unread = UNJUDGED
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Of a terminal that knows no "…" or "µ".
        sys.stdout.reconfigure(errors="replace")
    try:
        code, reason = _run(words, mistake, crash)
    except BrokenPipeError:
        # The reader, such as `head`, has what it wanted; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code, reason = unread, "nobody reads standard output to its end"
    if judges and reason:
        # What cannot be written has been said.
        with contextlib.suppress(OSError):
            _write_unjudged(words, reason)
    return code
