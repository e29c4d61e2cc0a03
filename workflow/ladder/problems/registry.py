"""Every problem by name: each folder here defines `PROBLEM`."""

import importlib
import pkgutil
from pathlib import Path

from ladder.model.code import PACKAGE
from ladder.model.problem import Problem

_FOLDER = Path(__file__).parent
INCLUDE = PACKAGE / "gpu"
"""Folder of harness.cuh, which holds the kernels of every problem's harness."""


def _found() -> dict[str, Problem]:
    names = [module.name for module in pkgutil.iter_modules([str(_FOLDER)]) if module.ispkg]
    problems = [importlib.import_module(f"ladder.problems.{name}").PROBLEM for name in names]
    return {problem.name: problem for problem in sorted(problems, key=lambda one: (one.place, one.name))}


PROBLEMS: dict[str, Problem] = _found()


def harness_source(name: str) -> Path:
    """CUDA source of a problem's harness: its own check.cu, which includes harness.cuh, or that alone."""
    own = _FOLDER / name / "check.cu"
    return own if own.is_file() else INCLUDE / "harness.cuh"
