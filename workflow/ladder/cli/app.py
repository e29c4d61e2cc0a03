"""The command line: finds the step that is asked for, and turns mistakes into messages and exit codes."""

import argparse
import contextlib
import importlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder import __version__
from ladder.model.errors import LadderError

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
    "report": "analyse",
    "publish": "publish",
    "judge": "judge",
    "reproduce": "judge",
}
"""Step -> the module of this folder that holds it as a function."""

# Exit codes: something that the user gave is wrong; the program itself failed.
MISTAKE, CRASH = 2, 3
STDOUT = Path("-")
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


def takes_verdicts(path: Path) -> bool:
    """Whether JSON may be written there: in a new file, or in place of JSON, but not of a source."""
    if path == STDOUT or not path.exists():
        return path.parent.is_dir()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) in (b"", b"{")


def _emptied_json(words: Sequence[str]) -> Path | None:
    """The file of JSON that `judge` is asked for, also where its other options are wrong; None where there is none."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--json", nargs="?", type=Path)
    file: Path | None = parser.parse_known_args(words)[0].json
    if file is None or not takes_verdicts(file):
        return None
    if file != STDOUT and file.exists():
        file.write_bytes(b"")
    return file


def write_verdict(file: Path | None, document: Mapping[str, Any]) -> None:
    """Write a line of JSON behind those of a file, if one is given."""
    line = json.dumps(document)
    if file == STDOUT:
        print(line, flush=True)
    elif file is not None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{line}\n")


def _run(words: Sequence[str]) -> tuple[int, str | None]:
    """Run one step: its exit code, and why it came to no end. Raises BrokenPipeError where nobody reads on."""
    try:
        try:
            _app(words)(words, prog_name="ladder")
        finally:
            sys.stdout.flush()
    except LadderError as error:
        logging.error("error: %s", error)
        return MISTAKE, str(error)
    except SystemExit as leave:
        cause = leave.__context__
        if isinstance(cause, BrokenPipeError):
            raise cause from None
        if isinstance(cause, typer.Exit):
            return cause.exit_code, None
        # Typer has shown it.
        said = getattr(cause, "format_message", lambda: str(cause))
        return MISTAKE, said()
    except BrokenPipeError:
        raise
    except OSError as error:
        place = error.filename2 or error.filename  # of a copy, the place that is full
        reason = f"{place}: {error.strerror}" if place else str(error)
        logging.error("error: %s", reason)
        return MISTAKE, reason
    except Exception as error:
        logging.exception("the program failed; this is no mistake of yours:")
        return CRASH, f"the program failed: {error!r}"
    return 0, None


def main(arguments: list[str] | None = None) -> int:
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    words = _settings_apart(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # closed by who started it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    judges = next((word for word in words if word in STEPS), "") == "judge"
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Of a terminal that knows no "…" or "µ".
        sys.stdout.reconfigure(errors="replace")
    file = None
    with contextlib.suppress(OSError):  # What cannot be written will be said.
        file = _emptied_json(words) if judges else None
    try:
        code, reason = _run(words)
    except BrokenPipeError:
        # The reader, such as `head`, has what it wanted; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return UNJUDGED if judges else 0
    if not judges or reason is None:
        return code
    with contextlib.suppress(OSError):
        write_verdict(file, NOT_JUDGED | {"reason": reason})
    return UNJUDGED
