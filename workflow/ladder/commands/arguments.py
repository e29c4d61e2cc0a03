"""Arguments that several steps share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ladder.runs import Run


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Let the step read a run's configuration as the workflow does."""
    parser.add_argument(
        "--configfile",
        type=Path,
        action="append",
        default=[],
        help="file merged over config/config.yaml; may be repeated",
    )
    parser.add_argument("--settings", default="{}", help="settings as JSON, merged over the files")


def load(arguments: argparse.Namespace, over: Mapping[str, Any] | None = None) -> Run:
    """The run the arguments describe, with the settings `over` on top. Raises LadderError for any mistake."""
    from ladder.runs import load_run, parse_over

    return load_run(arguments.root, arguments.configfile, parse_over(arguments.settings) | dict(over or {}))
