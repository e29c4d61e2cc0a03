"""Fewer rows than the product of parameters has: enough for a mistake that one value of each of two shows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any


def covering(
    rows: Sequence[Any], shows: Callable[[Any], Iterable[Hashable]]
) -> list[Any]:
    """Rows that together show what all of them do: the next one is the first of those that add the most."""
    shown = [frozenset(shows(row)) for row in rows]
    left, chosen = set().union(*shown), list[int]()
    while left:
        best = max(range(len(rows)), key=lambda at: len(shown[at] & left))
        left -= shown[best]
        chosen.append(best)
    return [rows[at] for at in sorted(chosen)]


def all_pairs(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows in which every value of each parameter meets every value of each other one."""
    places = itertools.product(*(range(len(one)) for one in values))
    rows = covering(list(places), lambda row: itertools.combinations(enumerate(row), 2))
    return [tuple(one[at] for one, at in zip(values, row, strict=True)) for row in rows]
