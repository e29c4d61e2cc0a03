"""Print the field reference of a document kind, or rewrite it in config/README.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from ladder.reference import KINDS

BEGIN = "<!-- reference: written by `make reference`, from the schemas -->"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("kind", nargs="*", help=f"document kinds (default: all of {', '.join(KINDS)})")
    parser.add_argument("--readme", type=Path, help="rewrite this file from its reference mark on")


def run(arguments: argparse.Namespace) -> int:
    """Raises LadderError for an unknown kind, or a file without the mark."""
    from ladder.errors import LadderError, refuse
    from ladder.reference import reference
    from ladder.tables import replace_file

    for kind in arguments.kind:
        if kind not in KINDS:
            raise refuse("command line", "kind", kind, KINDS)
    text = "\n".join(reference(kind) for kind in arguments.kind or KINDS)
    if arguments.readme is None:
        print(text, end="")
        return 0
    old = arguments.readme.read_text(encoding="utf-8")
    if BEGIN not in old:
        raise LadderError(f"{arguments.readme}: the mark {BEGIN} is missing")
    head = old.split(BEGIN, 1)[0]
    replace_file(arguments.readme, f"{head}{BEGIN}\n\n{text}".encode())
    return 0
