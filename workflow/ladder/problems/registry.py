"""Every problem by name: each folder here defines `PROBLEM`."""

import importlib
import pkgutil
from pathlib import Path

from ladder.model.problem import Problem

_NAMES = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.ispkg]
_FOUND: list[Problem] = [importlib.import_module(f"ladder.problems.{name}").PROBLEM for name in _NAMES]
PROBLEMS = {problem.name: problem for problem in sorted(_FOUND, key=lambda one: (one.place, one.name))}
