"""Every problem by name: each folder here but `own` defines `PROBLEM`."""

import importlib
import pkgutil
from operator import attrgetter
from pathlib import Path

from ladder.model.definition import Definition
from ladder.model.errors import LadderError
from ladder.model.problem import SIZE_COLUMNS, Problem
from ladder.problems.own import OwnProblem


def with_columns(problem: Problem) -> Problem:
    """The problem. Raises LadderError where tables have no column for a field of its sizes: rows would be dropped."""
    if unknown := [name for name in problem.size_fields if name not in SIZE_COLUMNS]:
        raise LadderError(
            f"the problem {problem.name}: size_fields: {', '.join(unknown)}: accepted: {', '.join(SIZE_COLUMNS)}; "
            "add a new one, in workflow/ladder, to SIZE_COLUMNS of model/problem.py and "
            "to _EXTENTS of catalogue/sanitizer_sweeps.py"
        )
    return problem


_NAMES = [
    module.name
    for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    if module.ispkg and module.name != "own"
]
_FOUND: list[Problem] = [
    importlib.import_module(f"ladder.problems.{name}").PROBLEM for name in _NAMES
]
PROBLEMS = {
    problem.name: with_columns(problem)
    for problem in sorted(_FOUND, key=attrgetter("place", "name"))
}


def problem_of(name: str, definition: Definition | None) -> Problem:
    """The problem of a name; one of one's own, whose name is the path of its document, is known from now on."""
    if definition is not None and name not in PROBLEMS:
        PROBLEMS[name] = with_columns(OwnProblem(name, definition))
    return PROBLEMS[name]
