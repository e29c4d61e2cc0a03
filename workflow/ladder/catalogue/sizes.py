"""Sizes as documents write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ladder.model.errors import LadderError, refuse
from ladder.model.expressions import evaluate
from ladder.model.problem import Problem


def parse_size(problem: Problem, given: Any, file: str, where: str) -> dict[str, int]:
    """A size from a number (all fields alike), an expression such as 2**28, or a mapping of fields.

    Raises LadderError naming `file`, the field `where` and what is accepted.
    """
    fields = problem.size_fields
    if not isinstance(given, Mapping):
        given = dict.fromkeys(fields, given)
    unknown = [key for key in given if key not in fields]
    if unknown:
        raise refuse(file, where, unknown[0], fields, why="no such size field")
    missing = [key for key in fields if key not in given]
    if missing:
        raise LadderError(f"{file}: {where}: the size field {missing[0]!r} is missing")
    size = {}
    for key in fields:
        value = evaluate(given[key], {})
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise refuse(file, f"{where}.{key}", given[key], "a whole number >= 1")
        size[key] = value
    return size
