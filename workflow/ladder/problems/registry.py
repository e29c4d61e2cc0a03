"""Every problem by name: each folder here defines `PROBLEM`."""

import importlib
import pkgutil
from pathlib import Path

from ladder.build.nvrtc import Request
from ladder.gpu.harness import ENTRIES
from ladder.model.code import PACKAGE
from ladder.model.problem import Problem

_FOLDER = Path(__file__).parent
_INCLUDE = PACKAGE / "gpu"
"""Folder of harness.cuh, which holds the kernels of every problem's harness."""


def _found() -> dict[str, Problem]:
    names = [module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.ispkg]
    problems = [importlib.import_module(f"ladder.problems.{name}").PROBLEM for name in names]
    return {problem.name: problem for problem in sorted(problems, key=lambda one: (one.place, one.name))}


PROBLEMS: dict[str, Problem] = _found()


def harness_request(name: str, arch: str) -> Request:
    """What is asked of the compiler for a problem's harness: its own check.cu, which includes harness.cuh, or that."""
    own = _FOLDER / name / "check.cu"
    source, entries = own if own.is_file() else _INCLUDE / "harness.cuh", (*ENTRIES, *PROBLEMS[name].harness)
    return Request(source, _INCLUDE, entries, arch)
