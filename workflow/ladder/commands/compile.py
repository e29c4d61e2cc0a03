"""Compile one variant to a cubin and its facts."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--kernel", type=Path, required=True, help="the kernel's YAML file")
    parser.add_argument("--params", default="{}", help="parameters as JSON; the rest are defaults")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--layout")
    parser.add_argument("--arch", required=True, help="architecture, such as sm_90a")
    parser.add_argument("--option", action="append", default=[], help="further NVRTC option; may be repeated")
    parser.add_argument(
        "--cubin", type=Path, required=True, help="cubin to write; empty where compiling failed"
    )
    parser.add_argument("--facts", type=Path, required=True, help="JSON of facts to write")


def run(arguments: argparse.Namespace) -> int:
    """A variant that does not compile is recorded in the facts, not an error of the step."""
    import json
    import logging

    from ladder.catalog import load_kernel
    from ladder.compiler import compile_variant
    from ladder.layout import Project
    from ladder.tables import replace_file

    kernel = load_kernel(arguments.kernel)
    variant = kernel.variant(json.loads(arguments.params), arguments.dtype, arguments.layout)
    include = Project(arguments.root).include
    cubin, facts = compile_variant(variant, include, arguments.arch, tuple(arguments.option))
    replace_file(arguments.cubin, cubin)
    replace_file(arguments.facts, (json.dumps(facts, indent=1) + "\n").encode())
    if facts["status"] != "ok":
        logging.warning("%s: %s: %s", variant.id, facts["status"], facts["reason"])
    return 0
