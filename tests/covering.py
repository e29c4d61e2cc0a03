"""Fewer rows than the product of parameters has: enough for a mistake that one value of each of two shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def all_pairs(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows in which every value of each parameter meets every value of each other one.

    The next row is the first of those that add the most pairs.
    """
    rows = [*itertools.product(*(range(len(each)) for each in values))]
    pairs = [frozenset(itertools.combinations(enumerate(row), 2)) for row in rows]
    left = set().union(*pairs)
    chosen = list[int]()
    while left:
        best = max(range(len(rows)), key=lambda at: len(pairs[at] & left))
        left -= pairs[best]
        chosen.append(best)
    return [
        tuple(each[at] for each, at in zip(values, rows[number], strict=True))
        for number in sorted(chosen)
    ]
