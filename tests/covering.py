"""Fewer rows than the product of parameters has: enough for a mistake that one value of each of two shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def all_pairs(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows in which every value of each parameter meets every value of each other one.

    The next row is the first of those that add the most.
    """
    rows = list(itertools.product(*(range(len(one)) for one in values)))
    pairs = [{*itertools.combinations(enumerate(row), 2)} for row in rows]
    left, chosen = set().union(*pairs), list[int]()
    while left:
        best = max(range(len(rows)), key=lambda at: len(pairs[at] & left))
        left -= pairs[best]
        chosen.append(best)
    return [
        tuple(one[at] for one, at in zip(values, rows[number], strict=True))
        for number in sorted(chosen)
    ]
