"""Every problem by name: each folder here defines `PROBLEM`."""

import importlib
import pkgutil
from pathlib import Path

from ladder.model.problem import Problem


def _found() -> dict[str, Problem]:
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.ispkg]
    problems = [importlib.import_module(f"ladder.problems.{name}").PROBLEM for name in names]
    return {problem.name: problem for problem in sorted(problems, key=lambda one: (one.place, one.name))}


PROBLEMS: dict[str, Problem] = _found()
